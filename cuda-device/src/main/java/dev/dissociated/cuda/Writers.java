package dev.dissociated.cuda;

import dev.dissociated.cuda.DeviceTableBuilder.DeviceBuffers;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The streams in which others write what is adopted: waited for here, or gathered into one event
 * that consumers wait for. Immutable.
 */
final class Writers {
  private final CudaDevice device;
  private final Set<Long> streams;

  Writers(CudaDevice device, List<DeviceBuffers> batches) {
    this.device = device;
    this.streams = batches.stream().map(DeviceBuffers::stream).collect(Collectors.toSet());
  }

  /** Returns when they have written it all. */
  void await() {
    streams.forEach(device::synchronize);
  }

  /**
   * An event, for all processes and owned by the caller, that is reached when they have. What it
   * takes to make one of several streams goes with it: to destroy that earlier would be to wait.
   */
  ReadyEvent event(String whose) {
    Deque<Runnable> last = new ArrayDeque<>();
    try {
      Driver.Event event = created(last);
      CudaStream order = new CudaStream(device);
      last.push(order::close);
      for (long stream : streams) {
        Driver.Event written = created(last);
        device.run(() -> Driver.record(written, Driver.streamOf(stream)));
        order.await(written);
      }
      order.record(event);
      return new ReadyEvent(device, event, whose, () -> last.forEach(Runnable::run));
    } catch (RuntimeException e) {
      last.forEach(Runnable::run);
      throw e;
    }
  }

  private Driver.Event created(Deque<Runnable> last) {
    Driver.Event event = device.get(Driver::createEvent);
    last.push(() -> device.run(() -> Driver.destroy(event)));
    return event;
  }
}
