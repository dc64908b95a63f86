package dev.dissociated.protocol.transport;

/** Which messages of a stream a {@code want_data} asks for over its connection. */
public enum StreamPart {
  /** Metadata, bodies and the end-of-stream. */
  WHOLE,
  /** Metadata and the end-of-stream: the client asks for the bodies over another connection. */
  METADATA,
  /** Bodies: the client asks for the metadata over another connection. */
  BODIES
}
