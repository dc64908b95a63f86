package dev.dissociated.protocol.stream;

import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.types.pojo.Schema;

/** A stream of which all is known before it is served, and that this process can read as well. */
public interface TableSource extends StreamSource {
  /** The schema, dictionary-encoded fields as in IPC. */
  Schema schema();

  /** Rows of all record batches. */
  long rows();

  /** Record batches, dictionaries not counted. */
  long batches();

  /** Bytes of all bodies. */
  long bytes();

  /** The same data as vectors over the same memory, for this process. */
  ArrowReader reader(BufferAllocator allocator);
}
