package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.StreamSummary;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;

/** What a consumer has received of one stream. Not thread-safe; read it from the reading thread. */
public final class StreamStatistics {
  private long batches;
  private long rows;
  private long bodyBytes;
  private long copiedBytes;
  private boolean schema;
  private final Set<Integer> bodyTypes = new TreeSet<>();
  private StreamSummary summary;

  boolean hasSchema() {
    return schema;
  }

  void schema() {
    schema = true;
  }

  void body(ReceivedBody body) {
    if (body instanceof ReceivedBody.ByReference reference) {
      bodyTypes.add(1);
      bodyBytes += reference.list().total();
    } else if (body instanceof ReceivedBody.Packed packed) {
      bodyTypes.add(0);
      bodyBytes += packed.length();
    }
  }

  void batch(long rowCount) {
    batches++;
    rows += rowCount;
  }

  void copied(long bytes) {
    copiedBytes += bytes;
  }

  void summary(StreamSummary account) {
    summary = account;
  }

  /** Record batches handed out. */
  public long batches() {
    return batches;
  }

  /** Rows handed out. */
  public long rows() {
    return rows;
  }

  /** Bytes of all bodies. */
  public long bodyBytes() {
    return bodyBytes;
  }

  /** Bytes that this end copied; packed bodies are received in place and do not count. */
  public long copiedBytes() {
    return copiedBytes;
  }

  /** The body types seen: 0 packed, 1 by reference. */
  public Set<Integer> bodyTypes() {
    return Set.copyOf(bodyTypes);
  }

  /** The server's own account, once the stream has ended and if its transport carries one. */
  public Optional<StreamSummary> server() {
    return Optional.ofNullable(summary);
  }
}
