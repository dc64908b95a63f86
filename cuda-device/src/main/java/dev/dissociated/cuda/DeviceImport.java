package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;

/**
 * Memory of an exporter's as this process reaches it. Opened once however many connections use it,
 * and closed with the last of them. Thread-safe.
 *
 * <p>What is open is known by the exporter's name for it: addresses and handles may come again for
 * other memory.
 */
final class DeviceImport implements AutoCloseable {
  private static final Map<String, DeviceImport> OPEN = new HashMap<>();

  private final String exporter;
  private final CudaDevice device;
  private final long base;
  private final long size;
  private final ReadyEvent ready;
  private final Optional<DeviceArena> absolute;
  private final Runnable onLast;
  private int users = 1;

  /**
   * @param absolute what addresses lie in that are told as they are; empty for offsets
   */
  private DeviceImport(
      CudaLocation location,
      CudaDevice device,
      long base,
      long size,
      ReadyEvent ready,
      Optional<DeviceArena> absolute,
      Runnable onLast) {
    this.exporter = location.exporter();
    this.device = device;
    this.base = base;
    this.size = size;
    this.ready = ready;
    this.absolute = absolute;
    this.onLast = onLast;
  }

  /**
   * Opens the memory of a location; each success needs a {@link #close}.
   *
   * @throws DissociatedException UNAVAILABLE when this process cannot reach it
   */
  static DeviceImport open(CudaLocation location) {
    synchronized (OPEN) {
      DeviceImport known = OPEN.get(location.exporter());
      if (known != null) {
        known.users++;
        return known;
      }
      DeviceImport opened =
          DeviceArena.isOfThisProcess(location.exporter())
              ? ofThisProcess(location)
              : ofAnother(location);
      OPEN.put(location.exporter(), opened);
      return opened;
    }
  }

  private static DeviceImport ofThisProcess(CudaLocation location) {
    DeviceArena arena =
        DeviceArena.ofThisProcess(location.exporter())
            .orElseThrow(() -> refused(location, "it is gone", null));
    arena.hold();
    return new DeviceImport(
        location,
        arena.device(),
        arena.address(),
        arena.size(),
        arena.ready(), // its own process cannot open an event's handle, nor need it
        location.handle().isEmpty() ? Optional.of(arena) : Optional.empty(),
        arena::release);
  }

  private static DeviceImport ofAnother(CudaLocation location) {
    byte[] handle =
        location
            .handle()
            .orElseThrow(
                () ->
                    refused(location, "it has no handle, and only its own process reads it", null));
    CudaDevice device = deviceOf(location);
    try {
      return device.get(() -> open(location, device, handle));
    } catch (DissociatedException e) {
      throw refused(location, e.getMessage(), e);
    }
  }

  private static DeviceImport open(CudaLocation location, CudaDevice device, byte[] handle) {
    long address = Driver.open(handle);
    try {
      long start = Driver.attribute(Driver.Attribute.START, address);
      long size = Driver.attribute(Driver.Attribute.SIZE, address);
      ReadyEvent ready =
          location.event().map(event -> opened(location, device, event)).orElse(ReadyEvent.NONE);
      return new DeviceImport(
          location,
          device,
          address,
          size - (address - start),
          ready,
          Optional.empty(),
          () -> {
            ready.destroy();
            device.run(() -> Driver.close(address));
          });
    } catch (RuntimeException e) {
      Driver.close(address);
      throw e;
    }
  }

  private static ReadyEvent opened(CudaLocation location, CudaDevice device, byte[] handle) {
    Driver.Event event = Driver.openEvent(handle);
    return new ReadyEvent(
        device, event, location.exporter(), () -> device.run(() -> Driver.destroy(event)));
  }

  private static CudaDevice deviceOf(CudaLocation location) {
    return CudaDevice.of(location.device())
        .orElseThrow(() -> refused(location, "this process does not see the device", null));
  }

  private static DissociatedException refused(CudaLocation location, String why, Throwable cause) {
    return new DissociatedException(
        Code.UNAVAILABLE,
        "device memory not opened: "
            + why
            + ", exporter="
            + location.exporter()
            + " device="
            + location.device(),
        cause);
  }

  CudaDevice device() {
    return device;
  }

  /** What has to be waited for after each body, before the memory is read. */
  ReadyEvent ready() {
    return ready;
  }

  /**
   * The address in this process of a range that the exporter named.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when it is not wholly inside the memory
   */
  long resolve(long address, long length) {
    boolean isInside =
        absolute.isPresent()
            ? absolute.get().holds(address, length)
            : address >= 0 && length >= 0 && length <= size && address <= size - length;
    if (!isInside) {
      throw DissociatedException.violation(
          "address refused: outside the allocation, address="
              + Long.toUnsignedString(address)
              + " length="
              + length
              + " size="
              + size);
    }
    return absolute.isPresent() ? address : base + address;
  }

  @Override
  public void close() {
    synchronized (OPEN) {
      if (--users > 0) {
        return;
      }
      OPEN.remove(exporter);
      // Under the lock: opened again meanwhile, the driver would count the two together.
      onLast.run();
    }
  }
}
