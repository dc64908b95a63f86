/**
 * UCX: metadata as active messages, bodies as tagged messages, over shared memory lanes, TCP or
 * RDMA, as the reference implementation of the protocol does.
 *
 * <p>{@link dev.dissociated.ucx.UcxTransport} is the way in. Everything else is internal: finding
 * and checking the libraries ({@code UcxLibrary}), one worker with its one endpoint ({@code
 * UcxPipe} with its parts {@code Outbox}, {@code Arrivals} and {@code PeerMemory}), who gets what
 * arrives over it ({@code Inbound}), what our own peers tell one another besides the stream ({@code
 * Control}), and the two kinds of {@code UcxConnection}.
 *
 * <p>UCX and its Java binding end the process on most mistakes: use after close, memory freed under
 * a request, an exception in a callback. Therefore only {@code UcxPipe} and its parts touch a
 * worker, an endpoint or a request, always under its lock, and what a request uses is kept alive
 * there until the request is complete or the worker is gone.
 *
 * <p>Threads: a listener has one thread, which receives for all its connections; a client has none.
 * Threads that send make the progress they need themselves.
 */
package dev.dissociated.ucx;
