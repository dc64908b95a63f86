package dev.dissociated.shm;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.ListenOptions;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;

/**
 * The properties of a listener, read from {@link ListenOptions#properties()} and checked.
 *
 * @param socketMode permissions of the socket file, {@code socket-mode} in octal; default 0600
 * @param socketGroup group of the socket file, {@code socket-group}; empty leaves it
 * @param allowedUsers user ids besides this process's own and 0, {@code allow-uid}, comma list
 * @param advertisedSocket the path that clients are told, {@code advertise-socket}, where they see
 *     the socket under another one; empty for the real one
 * @param heartbeatMillis longest silence of the server, {@code heartbeat-ms}; default 1000
 * @param stallMillis how long a send waits for a client that does not read, {@code stall-ms};
 *     default five minutes
 * @param maxConnections connections at a time, {@code max-connections}; default 4096
 * @param ringCapacity bytes of the ring that a client may ask for, {@code ring}; 0 for none
 * @param sizes the memory: the limit of the listener; {@code warm} bytes held ready (default: an
 *     eighth of the limit, at most 256 MiB, none below a limit of 256 MiB), {@code ready} bytes
 *     held ready in one piece besides (default 0), {@code linger-ms} that a domain's memory is kept
 *     after its last connection (default 5000), {@code segment-bytes} of a domain's first segment,
 *     {@code segment-max-bytes} of the largest one that is not made for a single block, {@code
 *     huge-pages}
 */
record ShmOptions(
    int socketMode,
    String socketGroup,
    Set<Integer> allowedUsers,
    String advertisedSocket,
    int heartbeatMillis,
    long stallMillis,
    int maxConnections,
    int ringCapacity,
    ArenaSizes sizes) {
  // The last one means nothing here: no client of that kind speaks shared memory.
  private static final Set<String> KNOWN =
      Set.of(
          "socket-mode",
          "socket-group",
          "allow-uid",
          "advertise-socket",
          "heartbeat-ms",
          "stall-ms",
          "max-connections",
          "ring",
          "warm",
          "ready",
          "linger-ms",
          "segment-bytes",
          "segment-max-bytes",
          "huge-pages",
          ListenOptions.REFERENCE);
  private static final int DEFAULT_MODE = 0600;
  private static final int ALL_MODES = 0777;
  private static final int DEFAULT_HEARTBEAT = 1000;
  static final long DEFAULT_STALL = 300_000;
  private static final int DEFAULT_CONNECTIONS = 4096;
  private static final int DEFAULT_RING = 64 << 10;
  private static final long DEFAULT_LINGER = 5000;
  private static final long WARM_FROM_LIMIT = 256L << 20;
  private static final long MAX_WARM = 256L << 20;
  private static final long MAX_SEGMENT = 1L << ShmFrame.OFFSET_BITS;

  static ShmOptions of(ListenOptions options) {
    Map<String, String> given = options.properties();
    for (String name : given.keySet()) {
      if (!KNOWN.contains(name)) {
        throw refused(name, "no such property; known are " + new java.util.TreeSet<>(KNOWN));
      }
    }
    if (options.memoryLimit() < 0) {
      throw refused("memory limit", "negative: " + options.memoryLimit());
    }
    return new ShmOptions(
        mode(given),
        given.getOrDefault("socket-group", ""),
        users(given.getOrDefault("allow-uid", "")),
        given.getOrDefault("advertise-socket", ""),
        (int) number(given, "heartbeat-ms", DEFAULT_HEARTBEAT, 1, Integer.MAX_VALUE),
        number(given, "stall-ms", DEFAULT_STALL, 1, Integer.MAX_VALUE),
        (int) number(given, "max-connections", DEFAULT_CONNECTIONS, 1, Integer.MAX_VALUE),
        ring(given),
        sizes(given, options.memoryLimit()));
  }

  private static int ring(Map<String, String> given) {
    long bytes = number(given, "ring", DEFAULT_RING, 0, Ring.MAX_CAPACITY);
    if (bytes != 0 && !Ring.isCapacity(bytes)) {
      throw refused("ring", "not 0 or a power of two from " + Ring.MIN_CAPACITY + ": " + bytes);
    }
    return (int) bytes;
  }

  private static ArenaSizes sizes(Map<String, String> given, long limit) {
    ArenaSizes fitting = ArenaSizes.of(limit);
    long initial =
        number(given, "segment-bytes", fitting.initial(), SegmentBlocks.MIN_SEGMENT, MAX_SEGMENT);
    long max =
        number(given, "segment-max-bytes", Math.max(initial, fitting.max()), initial, MAX_SEGMENT);
    long usual = limit < WARM_FROM_LIMIT ? 0 : Math.max(initial, Math.min(MAX_WARM, limit / 8));
    long warm = number(given, "warm", usual, 0, Long.MAX_VALUE);
    return new ArenaSizes(
        limit,
        wholePages(initial),
        wholePages(max),
        warm,
        wholePages(number(given, "ready", 0, 0, Math.min(limit, MAX_SEGMENT))),
        number(given, "linger-ms", DEFAULT_LINGER, 0, Integer.MAX_VALUE),
        HugePaging.parse(given.getOrDefault("huge-pages", "off")));
  }

  private static long wholePages(long bytes) {
    return (bytes + Linux.PAGE - 1) / Linux.PAGE * Linux.PAGE;
  }

  private static int mode(Map<String, String> given) {
    String text = given.get("socket-mode");
    if (text == null) {
      return DEFAULT_MODE;
    }
    try {
      int mode = Integer.parseInt(text, 8);
      if ((mode & ~ALL_MODES) == 0) {
        return mode;
      }
    } catch (NumberFormatException e) {
      // told below
    }
    throw refused("socket-mode", "not an octal mode: " + text);
  }

  private static Set<Integer> users(String list) {
    try {
      return Arrays.stream(list.split(","))
          .map(String::trim)
          .filter(text -> !text.isEmpty())
          .map(Integer::parseUnsignedInt)
          .collect(Collectors.toCollection(HashSet::new));
    } catch (NumberFormatException e) {
      throw refused("allow-uid", "not a list of user ids: " + list);
    }
  }

  private static long number(
      Map<String, String> given, String name, long otherwise, long min, long max) {
    String text = given.get(name);
    if (text == null) {
      return otherwise;
    }
    try {
      long value = Long.parseLong(text);
      if (value >= min && value <= max) {
        return value;
      }
    } catch (NumberFormatException e) {
      // told below
    }
    throw refused(name, "not a number from " + min + " to " + max + ": " + text);
  }

  private static DissociatedException refused(String name, String why) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT, "listener not started: " + name + " is " + why);
  }
}
