package dev.dissociated.flight;

import java.util.Locale;

/** How a stream's metadata reaches the client. */
public enum MetadataMode {
  /** As application metadata of the Flight call: what a proxy sees, it can police. */
  FLIGHT(0),
  /** On the data connection, along with the bodies: lowest latency. */
  INLINE(1);

  private final int number;

  MetadataMode(int number) {
    this.number = number;
  }

  /** The number of this mode in an exchange command. */
  int number() {
    return number;
  }

  /** The word that users write for it. */
  @Override
  public String toString() {
    return name().toLowerCase(Locale.ROOT);
  }
}
