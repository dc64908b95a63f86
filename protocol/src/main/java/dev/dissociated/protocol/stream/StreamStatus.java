package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.transport.Peer;
import java.time.Instant;

/**
 * What one connection of a server is doing: who holds which leases.
 *
 * @param id distinguishes the connections of one server
 * @param name the stream's name, for people; empty before one is requested
 * @param client who is at the other end
 * @param identity the Flight identity of the client; empty for none
 * @param metadata how metadata travels
 * @param state where the stream is
 * @param since when the connection was made
 * @param batches record batches sent
 * @param bodyBytes bytes of all bodies sent
 * @param copiedBytes bytes copied on the way
 * @param leases addresses that the client holds
 * @param leasedBytes bytes that those leases keep, resident data not counted
 * @param refusedFrees addresses freed that were not on lease
 */
public record StreamStatus(
    long id,
    String name,
    Peer client,
    String identity,
    String metadata,
    StreamState state,
    Instant since,
    long batches,
    long bodyBytes,
    long copiedBytes,
    long leases,
    long leasedBytes,
    long refusedFrees) {}
