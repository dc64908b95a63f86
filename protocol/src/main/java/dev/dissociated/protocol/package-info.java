/**
 * Arrow's Dissociated IPC protocol: the types that every other module shares.
 *
 * <p>Sub-packages, from pure to busy: {@code wire} holds the byte layouts, {@code transport} the
 * interfaces that a transport implements, {@code stream} the two ends of one stream of record
 * batches. This package holds what the users of all of them see: location URIs, the one exception,
 * and the reader that a consumer works with.
 */
package dev.dissociated.protocol;
