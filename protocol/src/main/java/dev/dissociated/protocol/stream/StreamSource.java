package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedUri;

/** What a stream is made of: pushes its messages into a sender. */
@FunctionalInterface
public interface StreamSource {
  /**
   * Sends the schema, then every dictionary and batch, and returns; the end-of-stream follows by
   * itself. Runs once per call, on a thread of the server's that may block. What it throws, the
   * client is told.
   */
  void produce(StreamSender out) throws Exception;

  /**
   * The location of a listener as clients of this stream are to be told of it: with the handle to
   * the stream's memory, where it has one of its own. May wait, as {@link #produce} may.
   */
  default DissociatedUri at(DissociatedUri location) {
    return location;
  }
}
