package dev.dissociated.ucx;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.ListenOptions;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * The properties of a listener, read from {@link ListenOptions#properties()} and checked.
 *
 * @param tls the UCX transports, {@code tls}; empty leaves them to the environment
 * @param advertiseHost the host that clients are told, {@code advertise-host}; empty for the
 *     listener's own
 * @param heartbeatMillis longest silence of the server, {@code heartbeat-ms}; default 1000
 * @param stallMillis how long a send waits for a client that takes nothing, {@code stall-ms};
 *     default five minutes
 * @param maxConnections connections at a time, {@code max-connections}; default 1024
 * @param reference whether clients like the reference are served, {@code reference}
 * @param remoteReads whether clients may read memory, {@code remote-reads}; default false
 */
record UcxOptions(
    String tls,
    String advertiseHost,
    int heartbeatMillis,
    long stallMillis,
    int maxConnections,
    boolean reference,
    boolean remoteReads) {
  private static final Set<String> KNOWN =
      Set.of(
          "tls",
          "advertise-host",
          "heartbeat-ms",
          "stall-ms",
          "max-connections",
          ListenOptions.REFERENCE,
          "remote-reads");
  private static final int DEFAULT_HEARTBEAT = 1000;
  static final long DEFAULT_STALL = 300_000;
  private static final int DEFAULT_CONNECTIONS = 1024;

  static UcxOptions of(ListenOptions options, String defaultTls) {
    Map<String, String> given = options.properties();
    for (String name : given.keySet()) {
      if (!KNOWN.contains(name)) {
        throw refused(name, "no such property; known are " + new TreeSet<>(KNOWN));
      }
    }
    if (options.memoryLimit() < 0) {
      throw refused("memory limit", "negative: " + options.memoryLimit());
    }
    return new UcxOptions(
        given.getOrDefault("tls", defaultTls),
        given.getOrDefault("advertise-host", ""),
        (int) number(given, "heartbeat-ms", DEFAULT_HEARTBEAT),
        number(given, "stall-ms", DEFAULT_STALL),
        (int) number(given, "max-connections", DEFAULT_CONNECTIONS),
        flag(given, ListenOptions.REFERENCE),
        flag(given, "remote-reads"));
  }

  private static boolean flag(Map<String, String> given, String name) {
    String text = given.getOrDefault(name, "false");
    if (!text.equals("true") && !text.equals("false")) {
      throw refused(name, "neither true nor false: " + text);
    }
    return text.equals("true");
  }

  private static long number(Map<String, String> given, String name, long otherwise) {
    String text = given.get(name);
    if (text == null) {
      return otherwise;
    }
    try {
      long value = Long.parseLong(text);
      if (value >= 1 && value <= Integer.MAX_VALUE) {
        return value;
      }
    } catch (NumberFormatException e) {
      // told below
    }
    throw refused(name, "not a number from 1 to " + Integer.MAX_VALUE + ": " + text);
  }

  private static DissociatedException refused(String name, String why) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT, "listener not started: " + name + " is " + why);
  }
}
