package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import org.apache.arrow.vector.types.pojo.Schema;

/** A stream in a device's memory, and the Flight call that it belongs to. */
final class DeviceEndpoint implements DeviceReader {
  private final DeviceReader reader;
  private final FlightExchange exchange;

  DeviceEndpoint(DeviceReader reader, FlightExchange exchange) {
    this.reader = reader;
    this.exchange = exchange;
    exchange.onFailure(reader::cancel);
  }

  @Override
  public Schema schema() {
    return reader.schema();
  }

  @Override
  public DeviceRecordBatch next() {
    return noted(reader.next());
  }

  @Override
  public DeviceRecordBatch next(long stream) {
    return noted(reader.next(stream));
  }

  private DeviceRecordBatch noted(DeviceRecordBatch batch) {
    if (batch == null) {
      exchange.ended();
    }
    return batch;
  }

  @Override
  public long copiedBytes() {
    return reader.copiedBytes();
  }

  @Override
  public void cancel(DissociatedException why) {
    reader.cancel(why);
    exchange.cancel(why);
  }

  @Override
  public void close() {
    try {
      reader.close();
    } finally {
      exchange.close();
    }
  }
}
