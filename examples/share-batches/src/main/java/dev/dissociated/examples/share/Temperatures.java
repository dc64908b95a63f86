package dev.dissociated.examples.share;

import java.util.List;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** Makes temperatures, in buffers of the allocator that it is given and fresh ones per batch. */
final class Temperatures extends NoOpFlightProducer {
  private static final int BATCHES = 10;
  private static final int ROWS = 1_000_000;
  private static final Schema SCHEMA =
      new Schema(
          List.of(
              Field.notNullable(
                  "celsius", new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE))));

  private final BufferAllocator allocator;

  Temperatures(BufferAllocator allocator) {
    this.allocator = allocator;
  }

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    FlightEndpoint here = new FlightEndpoint(new Ticket(new byte[0]));
    return new FlightInfo(SCHEMA, descriptor, List.of(here), -1, (long) BATCHES * ROWS);
  }

  @Override
  public void getStream(CallContext context, Ticket ticket, ServerStreamListener listener) {
    try (VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator)) {
      Float8Vector celsius = (Float8Vector) root.getVector("celsius");
      listener.start(root);
      for (int batch = 0; batch < BATCHES; batch++) {
        // Fresh buffers for each batch. The old ones live on until the consumer has freed them.
        celsius.allocateNew(ROWS);
        for (int row = 0; row < ROWS; row++) {
          celsius.set(row, batch + row % 10);
        }
        root.setRowCount(ROWS);
        listener.putNext();
      }
      listener.completed();
    }
  }
}
