package dev.dissociated.benchmarks.agent;

import java.nio.charset.StandardCharsets;

/**
 * What a consumer asks a server for, as the text of a Flight ticket: {@code
 * source/kind/batchBytes/totalBytes/distinctBytes}.
 *
 * @param source where the batches come from
 * @param kind what is in them
 * @param batchBytes bytes of one batch, about
 * @param totalBytes bytes of the stream; batches are repeated until it is that long
 * @param distinctBytes bytes of different batches that the server has
 */
public record Ticket(
    Source source, Kind kind, long batchBytes, long totalBytes, long distinctBytes) {
  /** Enough not to fit a core's own cache, little enough to have many of them. */
  public static final long DISTINCT = 64L << 20;

  /** Where batches come from. */
  public enum Source {
    /** Prepared once and kept in shared memory: serving is a replay. */
    RESIDENT,
    /** Ordinary vectors given to putNext. */
    ORDINARY,
    /** Vectors that were filled in shared memory long ago, given to putNext without a copy. */
    SHARED,
    /** Vectors that are filled in shared memory for each batch. */
    FRESH,
    /** One batch per byte that arrives on the server's ping socket. */
    LIVE,
    /** One batch now and then, which says when it was sent. */
    TICK
  }

  /** What is in a batch. */
  public enum Kind {
    /** One column of int64. */
    INT64,
    /** Twenty columns: integers, floats, timestamps, booleans, strings. */
    MIXED,
    /** Five columns of numbers, 10,000 rows, whatever the batch size. */
    SMALL,
    /** One column, one row, whatever the batch size. */
    ROW
  }

  /** A stream over the usual amount of distinct data. */
  public static Ticket of(Source source, Kind kind, long batchBytes, long totalBytes) {
    return new Ticket(source, kind, batchBytes, totalBytes, Math.max(DISTINCT, batchBytes));
  }

  /** A stream of one batch again and again, which stays in the caches if it fits there. */
  public static Ticket same(Source source, Kind kind, long batchBytes, long totalBytes) {
    return new Ticket(source, kind, batchBytes, totalBytes, batchBytes);
  }

  /** The same stream at another length. */
  public Ticket total(long bytes) {
    return new Ticket(source, kind, batchBytes, bytes, distinctBytes);
  }

  @Override
  public String toString() {
    return (source + "/" + kind).toLowerCase(java.util.Locale.ROOT)
        + "/"
        + batchBytes
        + "/"
        + totalBytes
        + "/"
        + distinctBytes;
  }

  byte[] bytes() {
    return toString().getBytes(StandardCharsets.UTF_8);
  }

  static Ticket parse(byte[] text) {
    String[] parts = new String(text, StandardCharsets.UTF_8).split("/");
    if (parts.length != 5) {
      throw new IllegalArgumentException("not a ticket of the benchmark");
    }
    return new Ticket(
        Source.valueOf(parts[0].toUpperCase(java.util.Locale.ROOT)),
        Kind.valueOf(parts[1].toUpperCase(java.util.Locale.ROOT)),
        Long.parseLong(parts[2]),
        Long.parseLong(parts[3]),
        Long.parseLong(parts[4]));
  }

  /** What tells the data of a stream, whatever its source and length. */
  String data() {
    return kind + "/" + batchBytes + "/" + distinctBytes;
  }
}
