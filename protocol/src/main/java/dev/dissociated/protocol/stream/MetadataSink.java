package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.transport.Connection;
import java.nio.ByteBuffer;

/**
 * Where the metadata stream of one stream goes: along with the bodies, or over a connection of its
 * own such as a Flight call. Called by one thread at a time.
 */
public interface MetadataSink {
  /** Sends one whole metadata message made of {@code parts}; copies them before it returns. */
  void send(ByteBuffer... parts);

  /** Hands everything sent so far to the client. */
  void flush();

  /** What users call this way of sending metadata. */
  String name();

  /** Whether metadata travels on a connection of its own, and may thus overtake bodies. */
  default boolean isSeparate() {
    return true;
  }

  /** Metadata on a connection of its own, of the same transport. */
  static MetadataSink over(Connection connection) {
    return new MetadataSink() {
      @Override
      public void send(ByteBuffer... parts) {
        connection.send(parts);
      }

      @Override
      public void flush() {
        connection.flush();
      }

      @Override
      public String name() {
        return "separate";
      }
    };
  }

  /** No metadata: the client has it from elsewhere. */
  static MetadataSink none() {
    return new MetadataSink() {
      @Override
      public void send(ByteBuffer... parts) {
        // not asked for
      }

      @Override
      public void flush() {
        // nothing was sent
      }

      @Override
      public String name() {
        return "none";
      }

      @Override
      public boolean isSeparate() {
        return false;
      }
    };
  }

  /** Metadata on the data connection itself: the specification's single server. */
  static MetadataSink inline(Connection connection) {
    return new MetadataSink() {
      @Override
      public void send(ByteBuffer... parts) {
        connection.send(parts);
      }

      @Override
      public void flush() {
        // the data connection is flushed anyway
      }

      @Override
      public String name() {
        return "inline";
      }

      @Override
      public boolean isSeparate() {
        return false;
      }
    };
  }
}
