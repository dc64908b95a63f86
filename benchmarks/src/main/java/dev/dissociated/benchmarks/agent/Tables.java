package dev.dissociated.benchmarks.agent;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.arrow.vector.BigIntVector;
import org.apache.arrow.vector.BitVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.IntVector;
import org.apache.arrow.vector.TimeStampMicroVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.arrow.vector.VectorSchemaRoot;

/** The batches of the comparison. The same kind has the same contents from every server. */
final class Tables {
  static final int SMALL_ROWS = 10_000;
  private static final int MIXED_ROW = 172;
  private static final int STRING = 12;

  private Tables() {}

  static VectorSchemaRoot batch(BufferAllocator allocator, Ticket ticket) {
    return switch (ticket.kind()) {
      case INT64 -> root(List.of(longs(allocator, "l0", rows(ticket, Long.BYTES), 0)));
      case MIXED -> mixed(allocator, rows(ticket, MIXED_ROW));
      case SMALL -> small(allocator);
      case ROW -> root(List.of(longs(allocator, "l0", 1, 0)));
    };
  }

  private static int rows(Ticket ticket, int rowBytes) {
    return (int) Math.max(1, ticket.batchBytes() / rowBytes);
  }

  private static VectorSchemaRoot root(List<FieldVector> vectors) {
    return new VectorSchemaRoot(vectors);
  }

  static long bytes(VectorSchemaRoot root) {
    return root.getFieldVectors().stream().mapToLong(FieldVector::getBufferSize).sum();
  }

  /** Adds up the first column, which is of int64. */
  static long sum(VectorSchemaRoot root) {
    FieldVector first = root.getVector(0);
    return sum(first.getDataBuffer().memoryAddress(), first.getValueCount());
  }

  /** Four sums at a time, so that the loop waits for memory and not for its own additions. */
  static long sum(long address, int count) {
    long a = 0;
    long b = 0;
    long c = 0;
    long d = 0;
    int fours = count & ~3;
    for (int i = 0; i < fours; i += 4) {
      long at = address + (long) i * Long.BYTES;
      a += MemoryUtil.getLong(at);
      b += MemoryUtil.getLong(at + 8);
      c += MemoryUtil.getLong(at + 16);
      d += MemoryUtil.getLong(at + 24);
    }
    for (int i = fours; i < count; i++) {
      a += MemoryUtil.getLong(address + (long) i * Long.BYTES);
    }
    return a + b + c + d;
  }

  private static VectorSchemaRoot small(BufferAllocator allocator) {
    List<FieldVector> all = new ArrayList<>();
    all.add(longs(allocator, "l0", SMALL_ROWS, 0));
    all.add(longs(allocator, "l1", SMALL_ROWS, 1));
    all.add(doubles(allocator, "d2", SMALL_ROWS));
    all.add(ints(allocator, "i3", SMALL_ROWS));
    all.add(ints(allocator, "i4", SMALL_ROWS));
    return root(all);
  }

  private static VectorSchemaRoot mixed(BufferAllocator allocator, int rows) {
    List<FieldVector> all = new ArrayList<>();
    for (int i = 0; i < 6; i++) {
      all.add(longs(allocator, "l" + i, rows, i));
    }
    for (int i = 0; i < 4; i++) {
      all.add(doubles(allocator, "d" + i, rows));
    }
    for (int i = 0; i < 3; i++) {
      all.add(ints(allocator, "i" + i, rows));
    }
    for (int i = 0; i < 2; i++) {
      all.add(timestamps(allocator, "t" + i, rows));
    }
    all.add(bits(allocator, rows));
    for (int i = 0; i < 4; i++) {
      all.add(strings(allocator, "s" + i, rows));
    }
    return root(all);
  }

  private static FieldVector longs(BufferAllocator allocator, String name, int rows, int first) {
    BigIntVector vector = new BigIntVector(name, allocator);
    vector.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      vector.set(i, i + first);
    }
    vector.setValueCount(rows);
    return vector;
  }

  private static FieldVector doubles(BufferAllocator allocator, String name, int rows) {
    Float8Vector vector = new Float8Vector(name, allocator);
    vector.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      vector.set(i, i * 0.5);
    }
    vector.setValueCount(rows);
    return vector;
  }

  private static FieldVector ints(BufferAllocator allocator, String name, int rows) {
    IntVector vector = new IntVector(name, allocator);
    vector.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      vector.set(i, i);
    }
    vector.setValueCount(rows);
    return vector;
  }

  private static FieldVector timestamps(BufferAllocator allocator, String name, int rows) {
    TimeStampMicroVector vector = new TimeStampMicroVector(name, allocator);
    vector.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      vector.set(i, i);
    }
    vector.setValueCount(rows);
    return vector;
  }

  private static FieldVector bits(BufferAllocator allocator, int rows) {
    BitVector vector = new BitVector("b", allocator);
    vector.allocateNew(rows);
    for (int i = 0; i < rows; i++) {
      vector.set(i, i & 1);
    }
    vector.setValueCount(rows);
    return vector;
  }

  private static FieldVector strings(BufferAllocator allocator, String name, int rows) {
    VarCharVector vector = new VarCharVector(name, allocator);
    vector.allocateNew((long) STRING * rows, rows);
    byte[] text = "abcdefghijkl".getBytes(StandardCharsets.US_ASCII);
    for (int i = 0; i < rows; i++) {
      text[i % STRING] = (byte) ('a' + i % 26);
      vector.set(i, text);
    }
    vector.setValueCount(rows);
    return vector;
  }
}
