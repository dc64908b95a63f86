package dev.dissociated.protocol.device;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.stream.MetadataSource;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.Transport;
import java.util.Optional;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;

/** A transport that shows a device's memory, found like any other. */
public interface DeviceTransport extends Transport {
  /** Whether a location of this transport says where a stream lies on a device. */
  boolean showsMemory(DissociatedUri location);

  /**
   * Asks for a stream, to be read where it lies.
   *
   * @param allocator for what comes in messages; not closed
   * @param connection a fresh connection of this transport, owned by the reader from here on
   * @param ticket what the server knows the stream by
   * @param metadata where metadata comes from; empty for the connection itself
   */
  DeviceReader read(
      BufferAllocator allocator,
      Connection connection,
      byte[] ticket,
      Optional<MetadataSource> metadata);

  /**
   * A stream that came into host memory, copied to the device batch by batch.
   *
   * @param host owned by the result from here on
   */
  DeviceReader upload(ArrowReader host);
}
