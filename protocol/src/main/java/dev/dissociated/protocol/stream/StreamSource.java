package dev.dissociated.protocol.stream;

/** What a stream is made of: pushes its messages into a sender. */
@FunctionalInterface
public interface StreamSource {
  /**
   * Sends the schema, then every dictionary and batch, and returns; the end-of-stream follows by
   * itself. Runs once per call, on a thread of the server's that may block. What it throws, the
   * client is told.
   */
  void produce(StreamSender out) throws Exception;
}
