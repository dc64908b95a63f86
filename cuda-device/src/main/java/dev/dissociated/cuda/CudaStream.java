package dev.dissociated.cuda;

import jcuda.driver.CUstream;

/**
 * A stream of this process's own: copies that run one after another, beside everything else. What
 * is started here is done when {@link #synchronize} returns. Thread-safe.
 */
final class CudaStream implements AutoCloseable {
  private final CudaDevice device;
  private final CUstream stream;

  CudaStream(CudaDevice device) {
    this.device = device;
    this.stream = device.get(Driver::createStream);
  }

  /** Starts a copy from host memory, which must stay as it is until it is done. */
  void toDevice(long to, long fromHost, long bytes) {
    if (bytes > 0) {
      device.run(() -> Driver.copyToDevice(to, fromHost, bytes, stream));
    }
  }

  void toHost(long toHost, long from, long bytes) {
    if (bytes > 0) {
      device.run(() -> Driver.copyToHost(toHost, from, bytes, stream));
    }
  }

  void onDevice(long to, long from, long bytes) {
    if (bytes > 0) {
      device.run(() -> Driver.copyOnDevice(to, from, bytes, stream));
    }
  }

  /** Nothing that comes later starts before the event. */
  void await(Driver.Event event) {
    device.run(() -> Driver.waitFor(stream, event));
  }

  /** The event is reached when all that has been started is done. */
  void record(Driver.Event event) {
    device.run(() -> Driver.record(event, stream));
  }

  /** The driver's handle, as other libraries take it. */
  long handle() {
    return Driver.valueOf(stream);
  }

  void synchronize() {
    device.run(() -> Driver.synchronize(stream));
  }

  @Override
  public void close() {
    device.run(() -> Driver.destroy(stream));
  }
}
