package dev.dissociated.protocol;

/**
 * What a stream cost its server.
 *
 * @param batches record batches sent
 * @param bodyBytes bytes of all bodies
 * @param copiedBytes bytes that the server copied on the way: 0 for data that already lay in memory
 *     the client may read
 */
public record StreamSummary(long batches, long bodyBytes, long copiedBytes) {}
