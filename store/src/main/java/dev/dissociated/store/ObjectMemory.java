package dev.dissociated.store;

import dev.dissociated.shm.SharedSegment;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.ArrowBuf;

/**
 * Where an object lies: segments of its own, and a block for what came inline. Nothing of it ever
 * changes. It is written to a disk as its image: each segment as a whole, then the block, each at a
 * multiple of {@value #ALIGNMENT}, so that buffers that overlap take no more than they did.
 *
 * @param parts the buffers
 * @param block for the parts that lie in no segment; null for none
 */
record ObjectMemory(List<Part> parts, List<SharedSegment> segments, ArrowBuf block) {
  static final int ALIGNMENT = 64;

  /**
   * One buffer.
   *
   * @param segment where it lies; null when it lies in the object's block, or has no bytes
   */
  record Part(SharedSegment segment, long offset, long length) {}

  /** A piece of memory in this process. */
  record Range(long address, long length) {}

  ObjectMemory {
    parts = List.copyOf(parts);
    segments = List.copyOf(segments);
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
  List<Range> image() {
    List<Range> image = new ArrayList<>();
    segments.forEach(segment -> image.add(new Range(segment.address(), segment.size())));
    if (block != null) {
      image.add(new Range(block.memoryAddress(), block.capacity()));
    }
    return image;
  }

  /** The parts' places in the image: their segments mean nothing any more. */
  List<Part> imageParts() {
    List<Part> placed = new ArrayList<>(parts.size());
    for (Part part : parts) {
      long at = 0;
      for (SharedSegment segment : segments) {
        if (segment == part.segment()) {
          break;
        }
        at += aligned(segment.size());
      }
      placed.add(new Part(null, part.length() == 0 ? 0 : at + part.offset(), part.length()));
    }
    return placed;
  }

  /** Memory that has been filled with an image. */
  static ObjectMemory ofImage(List<Part> imageParts, SharedSegment segment) {
    List<Part> parts = new ArrayList<>(imageParts.size());
    for (Part part : imageParts) {
      parts.add(new Part(part.length() == 0 ? null : segment, part.offset(), part.length()));
    }
    return new ObjectMemory(parts, List.of(segment), null);
  }

  /** Gives the memory back; clients may still have segments mapped. */
  void free() {
    segments.forEach(SharedSegment::close);
    if (block != null) {
      block.close();
    }
  }
}
