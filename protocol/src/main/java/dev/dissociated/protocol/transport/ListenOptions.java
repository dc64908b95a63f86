package dev.dissociated.protocol.transport;

import java.util.Map;

/**
 * Where and how to listen.
 *
 * @param address transport-defined: a socket path, {@code host:port}; empty picks a free one
 * @param memoryLimit bytes of memory that may be exported to peers, all trust domains together
 * @param properties further, transport-defined settings (documented by each transport)
 */
public record ListenOptions(String address, long memoryLimit, Map<String, String> properties) {
  /**
   * The property, {@code true} or {@code false}, that makes a listener take clients written like
   * the C++ reference as well; see {@link Listener#referenceLocations}.
   */
  public static final String REFERENCE = "reference";

  /** Copies the properties. */
  public ListenOptions {
    properties = Map.copyOf(properties);
  }

  /** A free address and the given memory limit. */
  public static ListenOptions anywhere(long memoryLimit) {
    return new ListenOptions("", memoryLimit, Map.of());
  }
}
