package dev.dissociated.flight;

import java.util.Objects;

/**
 * How a client wants a stream.
 *
 * @param via {@link #AUTO}, {@link #VIA_FLIGHT}, or the scheme of the only transport to be used
 * @param metadata how metadata is to travel when bodies do not go through Flight
 */
public record Preference(String via, MetadataMode metadata) {
  /** The fastest transport that works, and an ordinary DoGet when none does. */
  public static final String AUTO = "auto";

  /** An ordinary DoGet. */
  public static final String VIA_FLIGHT = "flight";

  /** The fastest transport, metadata over Flight. */
  public static final Preference DEFAULT = new Preference(AUTO, MetadataMode.FLIGHT);

  /** Refuses nulls. */
  public Preference {
    Objects.requireNonNull(via);
    Objects.requireNonNull(metadata);
  }

  /** What is in a device's memory is copied to the host only for those who say so. */
  boolean allows(String scheme) {
    return via.equals(scheme) || via.equals(AUTO) && !scheme.equals(Transports.DEVICE);
  }
}
