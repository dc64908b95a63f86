package dev.dissociated.protocol.stream;

import java.util.List;
import java.util.Optional;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;

/**
 * A record batch whose body nobody has looked at: what its metadata says, checked, and where its
 * buffers lie as the server names them. It holds the batch's leases until it is closed, on any
 * thread, once.
 *
 * @param rows rows of the batch
 * @param nodes length and null count of every field, depth first
 * @param variadicCounts data buffers of each view field
 * @param addresses of every buffer, in the server's terms; meaningless where the length is 0
 * @param lengths bytes of every buffer
 * @param packed the body itself where it came in the message; {@code addresses} are offsets in it
 *     then. Owned by this batch; empty where it lies in the server's memory
 * @param appMetadata the producer's own words; empty when there are none
 */
public record ReferencedBatch(
    int rows,
    List<ArrowFieldNode> nodes,
    List<Long> variadicCounts,
    long[] addresses,
    long[] lengths,
    Optional<ArrowBuf> packed,
    Optional<byte[]> appMetadata,
    Runnable release)
    implements AutoCloseable {
  /** Bytes of all buffers. */
  public long bytes() {
    long sum = 0;
    for (long length : lengths) {
      sum += length;
    }
    return sum;
  }

  /** Ends the leases, or gives the packed body back. */
  @Override
  public void close() {
    release.run();
  }
}
