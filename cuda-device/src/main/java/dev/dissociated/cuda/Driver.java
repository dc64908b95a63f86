package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.lang.reflect.Field;
import jcuda.NativePointerObject;
import jcuda.Pointer;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUevent;
import jcuda.driver.CUipcEventHandle;
import jcuda.driver.CUipcMemHandle;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.CUuuid;
import jcuda.driver.JCudaDriver;

/**
 * The driver's functions with addresses as numbers and failures as exceptions. Memory, streams and
 * events need a context that is current on the calling thread: {@link CudaDevice#run}.
 *
 * <p>Thread-safe, as the driver is. Every method fails with the same clear line where there is no
 * CUDA.
 */
final class Driver {
  /** Bytes of an IPC handle. */
  static final int HANDLE_LENGTH = 64;

  private static final int NON_BLOCKING = 1;
  private static final int LAZY_ENABLE_PEER_ACCESS = 1;
  private static final int DISABLE_TIMING = 2;
  private static final int INTERPROCESS = 4;
  private static final int NAME_LENGTH = 128;

  /** What a driver can tell about an address. */
  enum Attribute {
    /** Identifies the allocation, though not its address, for the life of the process. */
    BUFFER_ID(7),
    /** 1 for managed memory. */
    IS_MANAGED(8),
    /** The device that the memory belongs to. */
    DEVICE(9),
    /** 1 where the allocation has an IPC handle. */
    HAS_HANDLE(10),
    /** Where the allocation starts. */
    START(11),
    /** Bytes of the allocation. */
    SIZE(12);

    private final int number;

    Attribute(int number) {
      this.number = number;
    }
  }

  /** A device address as the binding has it, which hides the number from others. */
  static final class Address extends CUdeviceptr {
    long value() {
      return getNativePointer() + getByteOffset();
    }
  }

  /** An event whose number the C data interface needs. */
  static final class Event extends CUevent {
    long value() {
      return getNativePointer();
    }
  }

  /** The binding keeps the number of what it wraps to itself. */
  private static final Field POINTER = pointerField();

  private Driver() {}

  private static Field pointerField() {
    try {
      Field field = NativePointerObject.class.getDeclaredField("nativePointer");
      field.setAccessible(true);
      return field;
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private static void check(int code, String function) {
    check(code, function, "");
  }

  private static void check(int code, String function, String values) {
    if (code != CUresult.CUDA_SUCCESS) {
      throw new DissociatedException(
          codeOf(code), function + " failed: " + CUresult.stringFor(code) + values);
    }
  }

  private static Code codeOf(int result) {
    return switch (result) {
      case CUresult.CUDA_ERROR_OUT_OF_MEMORY -> Code.RESOURCE_EXHAUSTED;
      case CUresult.CUDA_ERROR_INVALID_DEVICE -> Code.INVALID_ARGUMENT;
      case CUresult.CUDA_ERROR_NOT_SUPPORTED, CUresult.CUDA_ERROR_PEER_ACCESS_UNSUPPORTED ->
          Code.UNSUPPORTED;
      default -> Code.INTERNAL;
    };
  }

  private static CUdeviceptr device(long address) {
    return new CUdeviceptr().withByteOffset(address);
  }

  private static Pointer host(long address) {
    return new Pointer().withByteOffset(address);
  }

  private static String bytes(long bytes) {
    return ", bytes=" + bytes;
  }

  private static String at(long address) {
    return ", address=0x" + Long.toHexString(address);
  }

  // ---- devices and contexts

  static CUdevice deviceOf(int ordinal) {
    Cuda.require();
    CUdevice device = new CUdevice();
    check(JCudaDriver.cuDeviceGet(device, ordinal), "cuDeviceGet", ", device=" + ordinal);
    return device;
  }

  static String nameOf(CUdevice device) {
    byte[] name = new byte[NAME_LENGTH];
    check(JCudaDriver.cuDeviceGetName(name, name.length, device), "cuDeviceGetName");
    int length = 0;
    while (length < name.length && name[length] != 0) {
      length++;
    }
    return new String(name, 0, length, java.nio.charset.StandardCharsets.UTF_8);
  }

  static byte[] uuidOf(CUdevice device) {
    CUuuid uuid = new CUuuid();
    check(JCudaDriver.cuDeviceGetUuid(uuid, device), "cuDeviceGetUuid");
    return uuid.bytes.clone();
  }

  static CUcontext retainContext(CUdevice device) {
    CUcontext context = new CUcontext();
    check(JCudaDriver.cuDevicePrimaryCtxRetain(context, device), "cuDevicePrimaryCtxRetain");
    return context;
  }

  static void push(CUcontext context) {
    check(JCudaDriver.cuCtxPushCurrent(context), "cuCtxPushCurrent");
  }

  static void pop() {
    check(JCudaDriver.cuCtxPopCurrent(new CUcontext()), "cuCtxPopCurrent");
  }

  // ---- memory

  static long allocate(long bytes) {
    Cuda.require();
    Address address = new Address();
    check(JCudaDriver.cuMemAlloc(address, bytes), "cuMemAlloc", bytes(bytes));
    return address.value();
  }

  static void free(long address) {
    Cuda.require();
    check(JCudaDriver.cuMemFree(device(address)), "cuMemFree", at(address));
  }

  /** Free and total bytes of the current device. */
  static long[] memoryInfo() {
    Cuda.require();
    long[] free = new long[1];
    long[] total = new long[1];
    check(JCudaDriver.cuMemGetInfo(free, total), "cuMemGetInfo");
    return new long[] {free[0], total[0]};
  }

  /** What is known of the allocation that {@code address} lies in. */
  static long attribute(Attribute attribute, long address) {
    Cuda.require();
    long[] value = new long[1];
    check(
        JCudaDriver.cuPointerGetAttribute(Pointer.to(value), attribute.number, device(address)),
        "cuPointerGetAttribute",
        at(address) + " attribute=" + attribute);
    return value[0];
  }

  static void copyToDevice(long to, long fromHost, long bytes, CUstream stream) {
    Cuda.require();
    check(
        JCudaDriver.cuMemcpyHtoDAsync(device(to), host(fromHost), bytes, stream),
        "cuMemcpyHtoDAsync",
        at(to) + bytes(bytes));
  }

  static void copyToHost(long toHost, long from, long bytes, CUstream stream) {
    Cuda.require();
    check(
        JCudaDriver.cuMemcpyDtoHAsync(host(toHost), device(from), bytes, stream),
        "cuMemcpyDtoHAsync",
        at(from) + bytes(bytes));
  }

  static void copyOnDevice(long to, long from, long bytes, CUstream stream) {
    Cuda.require();
    check(
        JCudaDriver.cuMemcpyDtoDAsync(device(to), device(from), bytes, stream),
        "cuMemcpyDtoDAsync",
        at(from) + bytes(bytes));
  }

  // ---- streams and events

  static CUstream createStream() {
    Cuda.require();
    CUstream stream = new CUstream();
    check(JCudaDriver.cuStreamCreate(stream, NON_BLOCKING), "cuStreamCreate");
    return stream;
  }

  static void destroy(CUstream stream) {
    check(JCudaDriver.cuStreamDestroy(stream), "cuStreamDestroy");
  }

  static void synchronize(CUstream stream) {
    check(JCudaDriver.cuStreamSynchronize(stream), "cuStreamSynchronize");
  }

  static void synchronizeContext() {
    check(JCudaDriver.cuCtxSynchronize(), "cuCtxSynchronize");
  }

  /** A stream that another library has made; 0, 1 and 2 name the default streams. */
  static CUstream streamOf(long handle) {
    CUstream stream = new CUstream();
    setPointer(stream, handle);
    return stream;
  }

  private static void setPointer(NativePointerObject object, long pointer) {
    try {
      POINTER.setLong(object, pointer);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }

  /** The driver's handle of a stream, as other libraries take it. */
  static long valueOf(CUstream stream) {
    try {
      return POINTER.getLong(stream);
    } catch (IllegalAccessException e) {
      throw new IllegalStateException(e);
    }
  }

  static void waitFor(CUstream stream, CUevent event) {
    check(JCudaDriver.cuStreamWaitEvent(stream, event, 0), "cuStreamWaitEvent");
  }

  /** An event that can be waited for, by other processes as well. */
  static Event createEvent() {
    Cuda.require();
    Event event = new Event();
    check(JCudaDriver.cuEventCreate(event, DISABLE_TIMING | INTERPROCESS), "cuEventCreate");
    return event;
  }

  static void record(CUevent event, CUstream stream) {
    check(JCudaDriver.cuEventRecord(event, stream), "cuEventRecord");
  }

  /** Whether all that was started before the event was recorded last is done. */
  static boolean isReached(CUevent event) {
    int code = JCudaDriver.cuEventQuery(event);
    if (code == CUresult.CUDA_ERROR_NOT_READY) {
      return false;
    }
    check(code, "cuEventQuery");
    return true;
  }

  /** An event that another library has made. */
  static Event eventOf(long handle) {
    Event event = new Event();
    setPointer(event, handle);
    return event;
  }

  static void destroy(CUevent event) {
    check(JCudaDriver.cuEventDestroy(event), "cuEventDestroy");
  }

  // ---- between processes

  /** The handle by which other processes open the allocation that starts at {@code address}. */
  static byte[] handleOf(long address) {
    Cuda.require();
    CUipcMemHandle handle = new CUipcMemHandle();
    check(JCudaDriver.cuIpcGetMemHandle(handle, device(address)), "cuIpcGetMemHandle", at(address));
    return Reserved.MEMORY.get(handle).clone();
  }

  /** Where another process's allocation begins here. Each opening needs a {@link #close}. */
  static long open(byte[] handle) {
    Cuda.require();
    CUipcMemHandle opened = new CUipcMemHandle();
    Reserved.MEMORY.set(opened, handle);
    Address address = new Address();
    check(
        JCudaDriver.cuIpcOpenMemHandle(address, opened, LAZY_ENABLE_PEER_ACCESS),
        "cuIpcOpenMemHandle");
    return address.value();
  }

  static void close(long address) {
    check(JCudaDriver.cuIpcCloseMemHandle(device(address)), "cuIpcCloseMemHandle", at(address));
  }

  static byte[] handleOf(CUevent event) {
    Cuda.require();
    CUipcEventHandle handle = new CUipcEventHandle();
    check(JCudaDriver.cuIpcGetEventHandle(handle, event), "cuIpcGetEventHandle");
    return Reserved.EVENT.get(handle).clone();
  }

  static Event openEvent(byte[] handle) {
    Cuda.require();
    CUipcEventHandle opened = new CUipcEventHandle();
    Reserved.EVENT.set(opened, handle);
    Event event = new Event();
    check(JCudaDriver.cuIpcOpenEventHandle(event, opened), "cuIpcOpenEventHandle");
    return event;
  }

  /** The bytes of a handle, which the binding keeps to itself. */
  private enum Reserved {
    MEMORY(CUipcMemHandle.class),
    EVENT(CUipcEventHandle.class);

    private final Field field;

    Reserved(Class<?> type) {
      try {
        field = type.getDeclaredField("reserved");
        field.setAccessible(true);
      } catch (ReflectiveOperationException e) {
        throw new ExceptionInInitializerError(e);
      }
    }

    byte[] get(Object handle) {
      try {
        return (byte[]) field.get(handle);
      } catch (IllegalAccessException e) {
        throw new IllegalStateException(e);
      }
    }

    void set(Object handle, byte[] bytes) {
      if (bytes.length != HANDLE_LENGTH) {
        throw new DissociatedException(
            Code.INVALID_ARGUMENT,
            "handle refused: not " + HANDLE_LENGTH + " bytes, length=" + bytes.length);
      }
      System.arraycopy(bytes, 0, get(handle), 0, HANDLE_LENGTH);
    }
  }
}
