package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.Arrays;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.types.pojo.ArrowType;

/**
 * A dense tensor in row-major order. Owns its buffer.
 *
 * @param element integers or floating-point numbers
 * @param shape lengths of the dimensions; none for a scalar
 * @param data the elements
 */
public record Tensor(ArrowType element, long[] shape, ArrowBuf data) implements AutoCloseable {
  /** Arrow's lists of fixed size hold no more. */
  private static final long MOST_ELEMENTS = Integer.MAX_VALUE;

  /**
   * Checks that they fit.
   *
   * @throws DissociatedException INVALID_ARGUMENT when not; UNSUPPORTED for other types and more
   *     than 2^31 - 1 elements
   */
  public Tensor {
    shape = shape.clone();
    long bytes = elements(shape) * width(element);
    if (data.capacity() < bytes) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT,
          "tensor refused: too few bytes, shape="
              + Arrays.toString(shape)
              + " bytes="
              + data.capacity()
              + " needed="
              + bytes);
    }
  }

  @Override
  public long[] shape() {
    return shape.clone();
  }

  /** How many elements it has. */
  public int elements() {
    return (int) elements(shape);
  }

  /** Bytes of its elements. */
  public long bytes() {
    return elements(shape) * width(element);
  }

  static long elements(long[] shape) {
    long count = 1;
    for (long length : shape) {
      if (length < 0) {
        throw new DissociatedException(
            Code.INVALID_ARGUMENT,
            "tensor refused: negative length, shape=" + Arrays.toString(shape));
      }
      if (length > 0 && count > MOST_ELEMENTS / length) {
        throw new DissociatedException(
            Code.UNSUPPORTED, "tensor refused: too many elements, shape=" + Arrays.toString(shape));
      }
      count *= length;
    }
    return count;
  }

  /** Bytes of one element. */
  static int width(ArrowType element) {
    if (element instanceof ArrowType.Int integer) {
      return integer.getBitWidth() / Byte.SIZE;
    }
    if (element instanceof ArrowType.FloatingPoint floating) {
      return switch (floating.getPrecision()) {
        case HALF -> Short.BYTES;
        case SINGLE -> Float.BYTES;
        case DOUBLE -> Double.BYTES;
      };
    }
    throw new DissociatedException(
        Code.UNSUPPORTED, "tensor refused: no tensors of that type, type=" + element);
  }

  @Override
  public void close() {
    data.close();
  }
}
