package dev.dissociated.store;

import dev.dissociated.shm.SharedSegment;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Where an object lies: segments of its own, a block for what came inline, and arenas on a device.
 * Nothing of it ever changes. Without arenas it is written to a disk as its image: each segment as
 * a whole, then the block, each at a multiple of {@value #ALIGNMENT}, so that buffers that overlap
 * take no more than they did.
 *
 * @param parts the buffers
 * @param block for the parts that lie neither in a segment nor in an arena; null for none
 */
record ObjectMemory(
    List<Part> parts, List<SharedSegment> segments, List<Arena> arenas, ArrowBuf block) {
  static final int ALIGNMENT = 64;

  /**
   * One buffer.
   *
   * @param segment where it lies; null when it lies elsewhere, or has no bytes
   * @param arena the same; where both are null, it lies in the object's block
   */
  record Part(SharedSegment segment, Arena arena, long offset, long length) {
    /** A part in host memory. */
    Part(SharedSegment segment, long offset, long length) {
      this(segment, null, offset, length);
    }
  }

  /** A piece of memory in this process. */
  record Range(long address, long length) {}

  ObjectMemory {
    parts = List.copyOf(parts);
    segments = List.copyOf(segments);
    arenas = List.copyOf(arenas);
  }

  /** An object in host memory. */
  ObjectMemory(List<Part> parts, List<SharedSegment> segments, ArrowBuf block) {
    this(parts, segments, List.of(), block);
  }

  /** Bytes of the parts that lie on a device. */
  long deviceBytes() {
    return parts.stream().filter(part -> part.arena() != null).mapToLong(Part::length).sum();
  }

  /** What they take there. */
  long deviceCharge() {
    return arenas.stream().mapToLong(arena -> arena.size).sum();
  }

  /** What the kernel counts for it. */
  long charge() {
    return segments.stream().mapToLong(SharedSegment::charge).sum()
        + (block == null ? 0 : block.capacity());
  }

  static long aligned(long length) {
    return (length + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
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

  /** The pieces of its image, in order; maps the segments. */
  List<Range> pieces() {
    List<Range> pieces = new ArrayList<>();
    segments.forEach(segment -> pieces.add(new Range(segment.address(), segment.size())));
    if (block != null) {
      pieces.add(new Range(block.memoryAddress(), block.capacity()));
    }
    return pieces;
  }

  /** How it lies in its image. */
  Image image() {
    List<Long> lengths = new ArrayList<>();
    Map<SharedSegment, Long> starts = new HashMap<>();
    long length = 0;
    for (SharedSegment segment : segments) {
      starts.put(segment, length);
      lengths.add(segment.size());
      length += aligned(segment.size());
    }
    long blockStart = length;
    if (block != null) {
      lengths.add(block.capacity());
      length += aligned(block.capacity());
    }
    List<Part> placed = new ArrayList<>(parts.size());
    for (Part part : parts) {
      long start = part.segment() == null ? blockStart : starts.get(part.segment());
      placed.add(new Part(null, part.length() == 0 ? 0 : start + part.offset(), part.length()));
    }
    return new Image(List.copyOf(placed), List.copyOf(lengths), length);
  }

  /**
   * An object as it lies on a disk.
   *
   * @param parts the buffers, by their offsets in it
   * @param lengths of its pieces; the padding between them is not part of it
   */
  record Image(List<Part> parts, List<Long> lengths, long length) {
    /** The object, once a segment or a block has been filled with this; one of them is null. */
    ObjectMemory in(SharedSegment segment, ArrowBuf block) {
      List<Part> placed = new ArrayList<>(parts.size());
      for (Part part : parts) {
        placed.add(new Part(part.length() == 0 ? null : segment, part.offset(), part.length()));
      }
      return new ObjectMemory(placed, segment == null ? List.of() : List.of(segment), block);
    }
  }

  /** Gives the memory back; clients may still have segments mapped, and arenas open. */
  void free() {
    arenas.forEach(Arena::giveUp);
    segments.forEach(SharedSegment::close);
    if (block != null) {
      block.close();
    }
  }
}
