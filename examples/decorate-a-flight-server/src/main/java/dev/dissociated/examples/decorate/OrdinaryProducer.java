package dev.dissociated.examples.decorate;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.List;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowFileReader;

/** The Flight service that you already have: it serves one Arrow file. Nothing here is ours. */
final class OrdinaryProducer extends NoOpFlightProducer {
  private final BufferAllocator allocator;
  private final Path file;

  OrdinaryProducer(BufferAllocator allocator, Path file) {
    this.allocator = allocator;
    this.file = file;
  }

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    try (FileChannel channel = FileChannel.open(file);
        ArrowFileReader reader = new ArrowFileReader(channel, allocator)) {
      FlightEndpoint here = new FlightEndpoint(new Ticket(new byte[0]));
      return new FlightInfo(
          reader.getVectorSchemaRoot().getSchema(), descriptor, List.of(here), -1, -1);
    } catch (IOException e) {
      throw CallStatus.INTERNAL.withDescription("cannot read: " + e).toRuntimeException();
    }
  }

  @Override
  public void getStream(CallContext context, Ticket ticket, ServerStreamListener listener) {
    try (FileChannel channel = FileChannel.open(file);
        ArrowFileReader reader = new ArrowFileReader(channel, allocator)) {
      listener.start(reader.getVectorSchemaRoot(), reader);
      while (reader.loadNextBatch()) {
        listener.putNext();
      }
      listener.completed();
    } catch (IOException e) {
      listener.error(CallStatus.INTERNAL.withDescription("cannot read: " + e).toRuntimeException());
    }
  }
}
