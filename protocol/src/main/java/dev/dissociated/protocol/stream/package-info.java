/**
 * The two ends of one stream of record batches, on top of any transport.
 *
 * <p>{@link dev.dissociated.protocol.stream.StreamServer} takes requests and runs sources; {@link
 * dev.dissociated.protocol.stream.StreamSender} numbers messages, sends bodies by reference or
 * packed and keeps their memory leased; {@link dev.dissociated.protocol.stream.StreamReceiver}
 * joins the two streams and turns the end of every buffer into {@code free_data}. Apart from the
 * server's housekeeping nothing here starts a thread.
 */
package dev.dissociated.protocol.stream;
