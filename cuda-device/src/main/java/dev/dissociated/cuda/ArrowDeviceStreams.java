package dev.dissociated.cuda;

import com.sun.jna.Callback;
import com.sun.jna.CallbackReference;
import com.sun.jna.Pointer;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.arrow.c.ArrowSchema;
import org.apache.arrow.c.Data;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Hands a stream of device batches to native code as the {@code ArrowDeviceArrayStream} of the
 * Arrow C device interface. Batches are exported as {@link DeviceRecordBatch#exportTo} does it,
 * each with a release callback of its own; the words of the producer ({@link
 * DeviceRecordBatch#appMetadata}) have no place there and are left out.
 *
 * <p>As the interface has it, one thread at a time calls the stream, and any thread may.
 */
public final class ArrowDeviceStreams {
  /** Bytes of a struct ArrowDeviceArrayStream. */
  public static final int LENGTH = 48;

  private static final int DEVICE_TYPE = 0;
  private static final int GET_SCHEMA = 8;
  private static final int GET_NEXT = 16;
  private static final int GET_LAST_ERROR = 24;
  private static final int RELEASE = 32;
  private static final int PRIVATE = 40;

  private static final int EIO = 5;
  private static final int ENOMEM = 12;
  private static final int EINVAL = 22;
  private static final int ENOTSUP = 95;
  private static final int ECANCELED = 125;

  /** What get_schema and get_next are: 0, or a number of errno. */
  private interface Fill extends Callback {
    int invoke(Pointer stream, Pointer out);
  }

  /** What get_last_error is. */
  private interface Describe extends Callback {
    Pointer invoke(Pointer stream);
  }

  /** What the release callback is. */
  private interface Release extends Callback {
    void invoke(Pointer stream);
  }

  private static final Map<Long, Exported> EXPORTED = new ConcurrentHashMap<>();
  private static final AtomicLong IDS = new AtomicLong();

  /** For schemas, which native code gives back when it likes. */
  private static final BufferAllocator SCHEMAS = new RootAllocator();

  // Kept for ever: native code calls them by address.
  private static final Fill SCHEMA = (stream, out) -> of(stream).schema(Pointer.nativeValue(out));
  private static final Fill NEXT = (stream, out) -> of(stream).next(Pointer.nativeValue(out));
  private static final Describe LAST_ERROR = stream -> of(stream).lastError();
  private static final Release END = stream -> release(Pointer.nativeValue(stream));

  private ArrowDeviceStreams() {}

  /**
   * Writes {@code reader} as an {@code ArrowDeviceArrayStream}. Its release callback does what
   * {@link DeviceReader#close} does, which must not be called any more; batches that are still out
   * stay valid. A failure of the stream is an errno, and {@code get_last_error} says it in one
   * line.
   *
   * @param reader owned by the struct from here on
   * @param arrowDeviceArrayStream address of {@link #LENGTH} bytes, whose contents are overwritten
   * @throws DissociatedException UNSUPPORTED when there is no CUDA; the reader is the caller's then
   */
  public static void export(DeviceReader reader, long arrowDeviceArrayStream) {
    Cuda.require();
    long id = IDS.incrementAndGet();
    EXPORTED.put(id, new Exported(Objects.requireNonNull(reader)));
    MemoryUtil.setMemory(arrowDeviceArrayStream, LENGTH, (byte) 0);
    MemoryUtil.putInt(arrowDeviceArrayStream + DEVICE_TYPE, DeviceArrayLayout.CUDA);
    MemoryUtil.putLong(arrowDeviceArrayStream + GET_SCHEMA, addressOf(SCHEMA));
    MemoryUtil.putLong(arrowDeviceArrayStream + GET_NEXT, addressOf(NEXT));
    MemoryUtil.putLong(arrowDeviceArrayStream + GET_LAST_ERROR, addressOf(LAST_ERROR));
    MemoryUtil.putLong(arrowDeviceArrayStream + RELEASE, addressOf(END));
    MemoryUtil.putLong(arrowDeviceArrayStream + PRIVATE, id);
  }

  private static long addressOf(Callback callback) {
    return Pointer.nativeValue(CallbackReference.getFunctionPointer(callback));
  }

  private static Exported of(Pointer stream) {
    return EXPORTED.get(stream.getLong(PRIVATE));
  }

  private static void release(long stream) {
    Exported exported = EXPORTED.remove(MemoryUtil.getLong(stream + PRIVATE));
    MemoryUtil.putLong(stream + RELEASE, 0);
    if (exported != null) {
      exported.close();
    }
  }

  /** One stream in native hands. What native code calls must not throw. */
  private static final class Exported {
    private final DeviceReader reader;
    private long error; // text of the last failure, 0 for none

    Exported(DeviceReader reader) {
      this.reader = reader;
    }

    int schema(long out) {
      return attempt(
          () -> Data.exportSchema(SCHEMAS, reader.schema(), null, ArrowSchema.wrap(out)));
    }

    int next(long out) {
      // An array without a release callback is the end, and nothing else may be found after errors.
      MemoryUtil.setMemory(out, DeviceArrayLayout.LENGTH, (byte) 0);
      return attempt(
          () -> {
            DeviceRecordBatch batch = reader.next();
            if (batch == null) {
              return;
            }
            try {
              batch.exportTo(out);
            } catch (RuntimeException e) {
              batch.close();
              throw e;
            }
          });
    }

    private int attempt(Runnable what) {
      try {
        what.run();
        return 0;
      } catch (DissociatedException e) {
        return failed(e.getMessage(), errno(e.code()));
      } catch (Throwable e) { // nothing may be thrown into native code
        return failed(e.toString(), EIO);
      }
    }

    private static int errno(DissociatedException.Code code) {
      return switch (code) {
        case RESOURCE_EXHAUSTED -> ENOMEM;
        case UNSUPPORTED -> ENOTSUP;
        case CANCELLED -> ECANCELED;
        case INVALID_ARGUMENT, PROTOCOL_VIOLATION, DATA_CORRUPT -> EINVAL;
        default -> EIO;
      };
    }

    private int failed(String text, int errno) {
      byte[] bytes = String.valueOf(text).getBytes(StandardCharsets.UTF_8);
      forget();
      error = MemoryUtil.allocateMemory(bytes.length + 1L);
      MemoryUtil.copyToMemory(bytes, 0, error, bytes.length);
      MemoryUtil.putByte(error + bytes.length, (byte) 0);
      return errno;
    }

    private void forget() {
      if (error != 0) {
        MemoryUtil.freeMemory(error);
        error = 0;
      }
    }

    Pointer lastError() {
      return error == 0 ? null : new Pointer(error);
    }

    void close() {
      attempt(reader::close);
      forget();
    }
  }
}
