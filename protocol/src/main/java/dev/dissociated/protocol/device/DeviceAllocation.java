package dev.dissociated.protocol.device;

/** An allocation of device memory of this process's, which others may open. Thread-safe. */
public interface DeviceAllocation extends AutoCloseable {
  /** What others open it by. */
  DeviceHandle handle();

  /**
   * Frees it, once nothing in this process has it open. Other processes must have closed it: what
   * freeing does to them is undefined. Idempotent.
   */
  @Override
  void close();
}
