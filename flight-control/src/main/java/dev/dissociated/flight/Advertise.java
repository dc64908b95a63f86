package dev.dissociated.flight;

import java.util.Locale;

/** Who is told of a server's further locations. */
public enum Advertise {
  /** Clients whose call headers ask: ordinary Flight clients notice nothing. */
  ASKED,
  /** Everybody, for clients that read locations and send no headers. */
  ALWAYS,
  /**
   * Clients that ask are told as usual. All others are told an ordered pair of locations, metadata
   * and bodies, and get tickets that are good without a Flight call: for clients written like the
   * Arrow project's C++ reference. Only over transports that have such locations (UCX).
   */
  REFERENCE;

  /** The word that users write for it. */
  @Override
  public String toString() {
    return name().toLowerCase(Locale.ROOT);
  }
}
