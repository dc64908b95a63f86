package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.RemoteMemory;
import java.util.Optional;

/**
 * A client's end: the memory that its location names, opened before anything is asked for and
 * closed before the connection is, since the server frees the memory then.
 */
final class CudaClientConnection extends CarriedConnection {
  private final Optional<DeviceImport> memory;
  private boolean closed;

  /**
   * @param memory owned by this connection from here on
   */
  CudaClientConnection(Connection carrier, Optional<DeviceImport> memory) {
    super(carrier);
    this.memory = memory;
  }

  /**
   * The server's memory.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when the location named none
   */
  DeviceImport memory() {
    return memory.orElseThrow(
        () ->
            DissociatedException.violation(
                "body refused: by reference, but the location names no device memory"));
  }

  /** Copies to the host: nothing is read in place by those who want host memory. */
  @Override
  public RemoteMemory remoteMemory() {
    return new RemoteMemory() {
      @Override
      public boolean isInPlace() {
        return false;
      }

      @Override
      public long resolve(long address, long length) {
        throw new DissociatedException(
            Code.UNSUPPORTED, "device memory is not read in place by the processor");
      }

      @Override
      public void read(long address, long length, long destination) {
        DeviceImport opened = memory();
        opened.ready().await();
        opened.device().copyToHost(destination, opened.resolve(address, length), length);
      }

      @Override
      public void close() {
        // closed with the connection, which the server waits for
      }
    };
  }

  private void closeMemory() {
    synchronized (this) {
      if (closed) {
        return;
      }
      closed = true;
    }
    memory.ifPresent(DeviceImport::close);
  }

  @Override
  public void fail(DissociatedException why) {
    closeMemory();
    carrier.fail(why);
  }

  @Override
  public void close() {
    closeMemory();
    carrier.close();
    carrier.remoteMemory().close();
  }
}
