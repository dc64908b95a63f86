package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.device.DeviceHandle;
import java.security.SecureRandom;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One allocation of device memory that is shown to other processes as a whole: all of one stream's,
 * and nothing else's, since who opens its handle sees all of it.
 *
 * <p>It is freed when its owner has closed it and the last hold on it has ended: every connection
 * that it is shown on holds it, and who was told its handle has the time of the {@link Quarantine}
 * to come. Thread-safe.
 */
final class DeviceArena implements AutoCloseable {
  /** The driver hands out memory in steps of this; an arena shares none with other allocations. */
  static final long GRANULE = 2L << 20;

  private enum State {
    OPEN,
    CLOSED,
    FREED
  }

  private static final Logger LOG = LoggerFactory.getLogger(DeviceArena.class);
  private static final long PROCESS_NUMBER = new SecureRandom().nextLong();
  private static final String PROCESS = HexFormat.of().toHexDigits(PROCESS_NUMBER);
  private static final AtomicLong SERIAL = new AtomicLong();
  private static final AtomicLong RESERVED = new AtomicLong();
  private static final Map<String, DeviceArena> OF_THIS_PROCESS = new ConcurrentHashMap<>();

  private final CudaDevice device;
  private final long address;
  private final long size;
  private final Runnable free;
  private final Optional<byte[]> handle;
  private final List<AdoptedMemory.Range> parts;
  private final long serial = SERIAL.incrementAndGet();
  private final String exporter = PROCESS + "." + serial;
  private volatile ReadyEvent ready = ReadyEvent.NONE;
  private State state = State.OPEN;
  private boolean told;
  private int holds;

  private DeviceArena(
      CudaDevice device,
      long address,
      long size,
      Optional<byte[]> handle,
      List<AdoptedMemory.Range> parts,
      Runnable free) {
    this.device = device;
    this.parts = parts;
    this.address = address;
    this.size = size;
    this.handle = handle;
    this.free = free;
    RESERVED.addAndGet(size);
    OF_THIS_PROCESS.put(exporter, this);
  }

  /**
   * Fresh memory of at least {@code bytes}.
   *
   * @throws DissociatedException RESOURCE_EXHAUSTED when the device has no room
   */
  static DeviceArena allocate(CudaDevice device, long bytes) {
    if (bytes < 0 || bytes > Long.MAX_VALUE - GRANULE) {
      throw new DissociatedException(Code.INVALID_ARGUMENT, "not allocated, bytes=" + bytes);
    }
    long size = sizeOf(bytes);
    MemoryLimit.take(size);
    try {
      return device.get(() -> allocated(device, size));
    } catch (RuntimeException e) {
      MemoryLimit.giveBack(size);
      throw e;
    }
  }

  private static DeviceArena allocated(CudaDevice device, long size) {
    long address = Driver.allocate(size);
    try {
      return new DeviceArena(
          device,
          address,
          size,
          Optional.of(Driver.handleOf(address)),
          List.of(new AdoptedMemory.Range(address, size)),
          () -> {
            MemoryLimit.giveBack(size);
            device.run(() -> Driver.free(address));
          });
    } catch (RuntimeException e) {
      Driver.free(address);
      throw e;
    }
  }

  /** Bytes of an arena for so many. */
  static long sizeOf(long bytes) {
    return Math.max(GRANULE, (bytes + GRANULE - 1) & -GRANULE);
  }

  /**
   * Memory of somebody else's, shown where it is.
   *
   * @param handle its handle; empty where it has none: then only this process can read it
   * @param free told when nobody reads it any longer
   */
  static DeviceArena adopt(
      CudaDevice device, long address, long size, Optional<byte[]> handle, Runnable free) {
    return new DeviceArena(
        device, address, size, handle, List.of(new AdoptedMemory.Range(address, size)), free);
  }

  /**
   * The same for allocations apart and without a handle: only this process reads them.
   *
   * @param parts at least one
   */
  static DeviceArena adopt(CudaDevice device, List<AdoptedMemory.Range> parts, Runnable free) {
    long start = Long.MAX_VALUE;
    long end = 0;
    for (AdoptedMemory.Range part : parts) {
      start = Math.min(start, part.start());
      end = Math.max(end, part.start() + part.size());
    }
    return new DeviceArena(device, start, end - start, Optional.empty(), parts, free);
  }

  /** The memory that {@code exporter} names, if it is of this process: it cannot be opened here. */
  static Optional<DeviceArena> ofThisProcess(String exporter) {
    return Optional.ofNullable(OF_THIS_PROCESS.get(exporter));
  }

  /** Whether {@code exporter} names this process. */
  static boolean isOfThisProcess(String exporter) {
    return exporter.startsWith(PROCESS + ".");
  }

  /** Bytes of all arenas that are not freed. */
  static long reserved() {
    return RESERVED.get();
  }

  CudaDevice device() {
    return device;
  }

  long address() {
    return address;
  }

  long size() {
    return size;
  }

  /** Whether a range lies wholly in one of the allocations. */
  boolean holds(long start, long length) {
    return parts.stream().anyMatch(part -> part.contains(start, length));
  }

  /** Whether a range lies wholly inside, be it over a gap between two allocations. */
  boolean contains(long start, long length) {
    return start >= address && length >= 0 && length <= size && start - address <= size - length;
  }

  /** How consumers are told of an address: as an offset where they open the memory themselves. */
  long told(long inside) {
    return handle.isPresent() ? inside - address : inside;
  }

  /** Its name among all of all processes. */
  String exporter() {
    return exporter;
  }

  /** Consumers wait for {@code reached} before they read; destroyed with the arena. */
  void readableAfter(ReadyEvent reached) {
    ready = reached;
  }

  /** What whoever reads it has to wait for. */
  ReadyEvent ready() {
    return ready;
  }

  /** {@code location} with what consumers need to open this memory. */
  synchronized DissociatedUri at(DissociatedUri location) {
    requireNotFreed();
    told = true;
    return new CudaLocation(handle, exporter, device.uuid(), ready.handle()).addTo(location);
  }

  /**
   * What others open it by. Unlike with {@link #at}, the caller knows who is told, and closes this
   * only when they have closed what they opened.
   */
  DeviceHandle handle() {
    return new DeviceHandle(PROCESS_NUMBER, serial, device.uuid(), size, handle.orElseThrow());
  }

  private void requireNotFreed() {
    if (state == State.FREED) {
      throw new DissociatedException(Code.NOT_FOUND, "device memory is gone, exporter=" + exporter);
    }
  }

  /** Keeps the memory until {@link #release} has been called as often. */
  synchronized void hold() {
    requireNotFreed();
    holds++;
  }

  void release() {
    boolean last;
    synchronized (this) {
      holds--;
      last = isUnused();
    }
    if (last) {
      free();
    }
  }

  /** To be called with the lock, once per change; whoever gets true frees. */
  private boolean isUnused() {
    if (state != State.CLOSED || holds > 0) {
      return false;
    }
    state = State.FREED;
    return true;
  }

  /** The owner needs it no longer. Idempotent. */
  @Override
  public void close() {
    boolean unused;
    synchronized (this) {
      if (state != State.OPEN) {
        return;
      }
      state = State.CLOSED;
      if (told) {
        holds++;
        Quarantine.after(this::release);
      }
      unused = isUnused();
    }
    if (unused) {
      free();
    }
  }

  /** Forgets memory that is not to be freed, since nobody was told of it. */
  void abandon() {
    OF_THIS_PROCESS.remove(exporter);
    RESERVED.addAndGet(-size);
    ready.destroy();
  }

  private void free() {
    try {
      ready.await(); // whoever writes it is not done before
      abandon();
      free.run();
    } catch (RuntimeException e) {
      LOG.warn("device memory was not freed: {}, exporter={}", e.getMessage(), exporter);
    }
  }
}
