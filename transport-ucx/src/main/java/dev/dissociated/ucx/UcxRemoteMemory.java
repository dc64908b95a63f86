package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.transport.RemoteMemory;

/** The memory of a server, copied from afar range by range. */
final class UcxRemoteMemory implements RemoteMemory {
  private final UcxClientConnection connection;
  private final long base;
  private final long length;

  /**
   * @param base where the server's arena starts
   * @param length its bytes; negative where the server does not say
   */
  UcxRemoteMemory(UcxClientConnection connection, long base, long length) {
    this.connection = connection;
    this.base = base;
    this.length = length;
  }

  @Override
  public boolean isInPlace() {
    return false;
  }

  @Override
  public long resolve(long address, long bytes) {
    throw DissociatedException.violation(
        "memory of the peer is not to be had in place, address=0x" + Long.toHexString(address));
  }

  @Override
  public void read(long address, long bytes, long destination) {
    boolean inside =
        bytes >= 0
            && (length < 0 || (bytes <= length && address >= base))
            && (length < 0 || address - base <= length - bytes);
    if (!inside) {
      throw DissociatedException.violation(
          "address refused: not in memory that the server shows, address=0x"
              + Long.toHexString(address)
              + " length="
              + bytes);
    }
    if (bytes > 0) {
      connection.read(address, bytes, destination);
    }
  }

  @Override
  public void close() {
    // nothing is mapped
  }
}
