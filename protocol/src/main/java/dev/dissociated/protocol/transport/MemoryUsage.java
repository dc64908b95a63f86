package dev.dissociated.protocol.transport;

/**
 * Memory that a listener has made visible to peers or holds ready for them, in bytes.
 *
 * @param limit what may be used at most
 * @param reserved what the kernel counts: all segments at their full size
 * @param used what is handed out to batches; the rest of {@code reserved} is warm and free
 */
public record MemoryUsage(long limit, long reserved, long used) {}
