/**
 * What a transport implements so that streams can travel over it.
 *
 * <p>A transport moves two kinds of message, as the specification requires: untagged ones
 * (metadata) and tagged ones (bodies, {@code want_data}, {@code free_data}). It knows nothing of
 * streams, of sequence numbers or of Arrow. A module offers one by naming its {@link
 * dev.dissociated.protocol.transport.Transport} in {@code META-INF/services}; it is right when it
 * passes the {@code TransportContract} tests.
 */
package dev.dissociated.protocol.transport;
