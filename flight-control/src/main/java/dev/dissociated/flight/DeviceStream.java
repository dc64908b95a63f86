package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * The record batches of a flight in a GPU's memory: the endpoints' streams one after another, as
 * one. Close it before its client. One thread reads; batches may be closed on any, also later.
 */
public final class DeviceStream implements DeviceReader {
  private final Deque<FlightEndpoint> endpoints;
  private final Function<FlightEndpoint, DeviceReader> opener;
  private final List<String> skipped;
  private volatile DeviceReader current;
  private Schema schema;
  private long copiedBefore;
  private boolean closed;

  /**
   * Opens the first endpoint; the others are opened when they are reached.
   *
   * @param skipped where the opener writes why it did not take a location
   */
  DeviceStream(
      List<FlightEndpoint> endpoints,
      Function<FlightEndpoint, DeviceReader> opener,
      List<String> skipped) {
    this.endpoints = new ArrayDeque<>(endpoints);
    this.opener = opener;
    this.skipped = skipped;
    if (endpoints.isEmpty()) {
      throw new DissociatedException(Code.NOT_FOUND, "the flight has no endpoints");
    }
    current = opener.apply(this.endpoints.remove());
  }

  /**
   * Why batches do not lie where the producer has them; empty when they do. For people: the text
   * has no fixed form.
   */
  public Optional<String> fallbackReason() {
    return skipped.isEmpty() ? Optional.empty() : Optional.of(String.join("; ", skipped));
  }

  @Override
  public Schema schema() {
    if (schema == null) {
      schema = current.schema();
    }
    return schema;
  }

  @Override
  public DeviceRecordBatch next() {
    return next(DeviceReader::next);
  }

  @Override
  public DeviceRecordBatch next(long stream) {
    return next(reader -> reader.next(stream));
  }

  private DeviceRecordBatch next(Function<DeviceReader, DeviceRecordBatch> read) {
    if (closed) {
      throw new IllegalStateException("the stream is closed");
    }
    Schema first = schema();
    DeviceRecordBatch batch = read.apply(current);
    while (batch == null && !endpoints.isEmpty()) {
      copiedBefore += current.copiedBytes();
      current.close();
      current = opener.apply(endpoints.remove());
      if (!current.schema().getFields().equals(first.getFields())) {
        throw new DissociatedException(
            Code.DATA_CORRUPT,
            "the flight's endpoints differ in schema, first="
                + first
                + " later="
                + current.schema());
      }
      batch = read.apply(current);
    }
    return batch;
  }

  @Override
  public long copiedBytes() {
    return copiedBefore + current.copiedBytes();
  }

  @Override
  public void cancel(DissociatedException why) {
    current.cancel(why);
  }

  @Override
  public void close() {
    if (!closed) {
      closed = true;
      current.close();
    }
  }
}
