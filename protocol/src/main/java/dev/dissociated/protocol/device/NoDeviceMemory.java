package dev.dissociated.protocol.device;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.List;
import java.util.Optional;
import java.util.UUID;

/** Stands for the module that is not on the class path. */
enum NoDeviceMemory implements DeviceMemory {
  INSTANCE;

  private static final String REASON =
      "CUDA not available: the module cuda-device is not on the class path";

  @Override
  public Optional<String> unavailable() {
    return Optional.of(REASON);
  }

  private static DissociatedException none() {
    return new DissociatedException(Code.UNSUPPORTED, REASON);
  }

  @Override
  public List<UUID> devices() {
    throw none();
  }

  @Override
  public long sizeOf(long bytes) {
    return bytes;
  }

  @Override
  public DeviceAllocation allocate(UUID device, long bytes) {
    throw none();
  }

  @Override
  public DeviceMapping open(DeviceHandle memory) {
    throw none();
  }

  @Override
  public void afterEndOf(long process, Runnable release) {
    throw none();
  }
}
