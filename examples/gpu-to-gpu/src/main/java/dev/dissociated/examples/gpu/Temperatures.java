package dev.dissociated.examples.gpu;

import dev.dissociated.cuda.LiveDeviceStream;
import java.nio.charset.StandardCharsets;
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

/** Says to Flight clients what there is, and makes it, one batch after another. */
final class Temperatures extends NoOpFlightProducer {
  static final String NAME = "temperatures";
  static final Schema SCHEMA =
      new Schema(
          List.of(
              Field.notNullable(
                  "celsius", new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE))));
  private static final int BATCHES = 10;
  private static final int ROWS = 1_000_000;

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    Ticket ticket = new Ticket(NAME.getBytes(StandardCharsets.UTF_8));
    List<FlightEndpoint> here = List.of(new FlightEndpoint(ticket));
    return new FlightInfo(SCHEMA, descriptor, here, -1, (long) BATCHES * ROWS);
  }

  /** Fills host vectors and copies them; a kernel would write to places that it reserves. */
  static void produce(BufferAllocator allocator, LiveDeviceStream out) {
    try (VectorSchemaRoot root = VectorSchemaRoot.create(SCHEMA, allocator)) {
      Float8Vector celsius = (Float8Vector) root.getVector("celsius");
      for (int batch = 0; batch < BATCHES; batch++) {
        celsius.allocateNew(ROWS);
        for (int row = 0; row < ROWS; row++) {
          celsius.set(row, batch + row % 10);
        }
        root.setRowCount(ROWS);
        // Waits while the arena is full, which is when the consumer holds three batches.
        out.write(root);
      }
    }
  }
}
