package dev.dissociated.flight;

import java.util.OptionalLong;
import java.util.Set;

/**
 * What a stream was made of and what it cost, all its endpoints together.
 *
 * @param via the scheme of the transport, or {@code flight}; that of the last endpoint read
 * @param metadata how metadata travelled
 * @param batches record batches read
 * @param rows rows read
 * @param bytes bytes of all bodies
 * @param bodyTypes the types seen: 0 packed, 1 by reference; empty for plain Flight
 * @param serverCopiedBytes bytes the servers say they have copied; empty where one did not say
 * @param clientCopiedBytes bytes this end has copied beyond receiving them
 */
public record StreamReport(
    String via,
    MetadataMode metadata,
    long batches,
    long rows,
    long bytes,
    Set<Integer> bodyTypes,
    OptionalLong serverCopiedBytes,
    long clientCopiedBytes) {

  /** Both together; {@code via} and {@code metadata} are the later one's. */
  StreamReport plus(StreamReport later) {
    Set<Integer> types = new java.util.TreeSet<>(bodyTypes);
    types.addAll(later.bodyTypes);
    OptionalLong copied =
        serverCopiedBytes.isPresent() && later.serverCopiedBytes.isPresent()
            ? OptionalLong.of(serverCopiedBytes.getAsLong() + later.serverCopiedBytes.getAsLong())
            : OptionalLong.empty();
    return new StreamReport(
        later.via,
        later.metadata,
        batches + later.batches,
        rows + later.rows,
        bytes + later.bytes,
        types,
        copied,
        clientCopiedBytes + later.clientCopiedBytes);
  }
}
