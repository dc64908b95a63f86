package dev.dissociated.protocol.transport;

/** The server's answer to a new connection. */
@FunctionalInterface
public interface Acceptor {
  /**
   * Takes a new connection and returns who handles its messages. Must not block; the connection
   * belongs to the handler from here on.
   */
  MessageHandler accept(Connection connection);
}
