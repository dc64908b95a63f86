package dev.dissociated.cuda;

import java.util.Optional;

/**
 * When memory may be read that somebody's stream still writes: once the event, as it was recorded
 * last, is reached. Thread-safe.
 */
final class ReadyEvent {
  /** For memory that is readable whenever one hears of it. */
  static final ReadyEvent NONE = new ReadyEvent(null, null, "", () -> {});

  private final CudaDevice device;
  private final Driver.Event event;
  private final String whose;
  private final Runnable destroy;

  /**
   * @param whose for messages
   * @param destroy gives the event back
   */
  ReadyEvent(CudaDevice device, Driver.Event event, String whose, Runnable destroy) {
    this.destroy = destroy;
    this.device = device;
    this.event = event;
    this.whose = whose;
  }

  /** The handle by which other processes open it. */
  Optional<byte[]> handle() {
    return event == null ? Optional.empty() : Optional.of(device.get(() -> Driver.handleOf(event)));
  }

  /** Holds this thread back, for a time that is bounded ({@link EventWait}). */
  void await() {
    if (event != null) {
      device.run(() -> EventWait.until(event, whose));
    }
  }

  /** Holds a stream of this process back, and not this thread. */
  void holdBack(long stream) {
    if (pending() != 0) {
      device.run(() -> Driver.waitFor(Driver.streamOf(stream), event));
    }
  }

  /** The driver's handle of the event; 0 where nobody has to wait any more. */
  long pending() {
    return event == null || device.get(() -> Driver.isReached(event)) ? 0 : event.value();
  }

  void destroy() {
    destroy.run();
  }
}
