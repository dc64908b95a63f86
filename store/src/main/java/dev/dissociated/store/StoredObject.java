package dev.dissociated.store;

import dev.dissociated.protocol.stream.BorrowedStream;
import dev.dissociated.shm.SharedSegment;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;

/**
 * An object in the daemon: its memory, who holds it, and for how long it lives. Everything that
 * changes is guarded by the {@link Catalogue}; the memory itself never changes.
 */
final class StoredObject {
  /** How far its life has come; see format-docs/store-protocol.md. */
  enum State {
    LISTED,
    HELD,
    GONE
  }

  /**
   * One buffer.
   *
   * @param segment where it lies; null when it lies in the object's block, or has no bytes
   */
  record Part(SharedSegment segment, long offset, long length) {}

  final String name;
  final ObjectType type;
  final int user;
  final List<Part> parts;
  final List<SharedSegment> segments;
  final long bytes;
  final long charge;
  final long putNanos = System.nanoTime();
  private final ArrowBuf block;

  // Guarded by the catalogue.
  State state = State.LISTED;
  boolean pinned;
  boolean mortal;
  long deadlineNanos;
  long leases;
  private BorrowedStream table;

  /**
   * Takes ownership of the memory.
   *
   * @param block for the parts that lie in no segment of their own; null for none
   */
  StoredObject(
      String name,
      ObjectType type,
      int user,
      List<Part> parts,
      List<SharedSegment> segments,
      ArrowBuf block) {
    this.name = name;
    this.type = type;
    this.user = user;
    this.parts = List.copyOf(parts);
    this.segments = List.copyOf(segments);
    this.block = block;
    this.bytes = parts.stream().mapToLong(Part::length).sum();
    this.charge =
        segments.stream().mapToLong(SharedSegment::charge).sum()
            + (block == null ? 0 : block.capacity());
  }

  /** Where a part of the block lies in this process. */
  long blockAddress(Part part) {
    return block.memoryAddress() + part.offset();
  }

  /** Where a part lies in this process; maps its segment. */
  long address(Part part) {
    if (part.length() == 0) {
      return 0;
    }
    return part.segment() == null ? blockAddress(part) : part.segment().address() + part.offset();
  }

  /** Its stream, once it has been read; otherwise null. */
  BorrowedStream table() {
    return table;
  }

  void table(BorrowedStream read) {
    table = read;
  }

  void liveFor(long ttlMillis, long now) {
    mortal = ttlMillis != 0;
    // Longer than any process lives is for ever, without an overflow.
    deadlineNanos = now + Math.min(ttlMillis, Long.MAX_VALUE / 4_000_000) * 1_000_000;
  }

  ObjectInfo info(long now) {
    return new ObjectInfo(
        name,
        type,
        pinned,
        RemoteCaller.shown(user),
        bytes,
        leases,
        (now - putNanos) / 1_000_000,
        mortal ? Math.max(1, (deadlineNanos - now) / 1_000_000) : 0);
  }

  /** Gives the memory back; clients may still have segments mapped. */
  void free() {
    segments.forEach(SharedSegment::close);
    if (block != null) {
      block.close();
    }
  }
}
