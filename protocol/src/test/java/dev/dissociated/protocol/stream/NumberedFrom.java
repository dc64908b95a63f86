package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.transport.Connection;
import java.util.Optional;
import org.apache.arrow.memory.BufferAllocator;

/** Lets tests start a stream's sequence numbers elsewhere than at 0: they wrap within a test. */
public final class NumberedFrom {
  private NumberedFrom() {}

  /** A server whose streams start at {@code first}. */
  public static StreamServer server(TicketSource tickets, StreamLimits limits, int first) {
    return new StreamServer(tickets, PairedSource.none(), limits, first);
  }

  /** A reader of a stream that starts at {@code first}. */
  public static DissociatedReader reader(
      BufferAllocator allocator,
      Connection connection,
      byte[] ticket,
      Optional<MetadataSource> metadata,
      DissociatedReader.Validation validation,
      int first) {
    StreamReceiver receiver = new StreamReceiver(allocator, connection, ticket, metadata, first);
    return new DissociatedReader(allocator, receiver, validation);
  }
}
