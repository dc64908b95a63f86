package dev.dissociated.cuda;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import jcuda.Pointer;
import jcuda.driver.CUcontext;
import jcuda.driver.CUdevice;
import jcuda.driver.CUdeviceptr;
import jcuda.driver.CUevent;
import jcuda.driver.CUipcEventHandle;
import jcuda.driver.CUipcMemHandle;
import jcuda.driver.CUresult;
import jcuda.driver.CUstream;
import jcuda.driver.JCudaDriver;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * The driver's functions as words, one call a line, with the driver's own result: so that tests can
 * break its rules in a process of their own. An answer is {@code OK VALUE} or the error's name.
 */
final class RawDriver {
  private static final Map<String, CUstream> STREAMS = new LinkedHashMap<>();
  private static final Map<String, CUevent> EVENTS = new LinkedHashMap<>();
  private static final Map<String, ByteBuffer> HOST = new LinkedHashMap<>();
  private static final List<Long> ALLOCATED = new ArrayList<>();
  private static final List<Long> OPENED = new ArrayList<>();

  private static final class Address extends CUdeviceptr {
    long value() {
      return getNativePointer() + getByteOffset();
    }
  }

  private RawDriver() {}

  /** Answers until its input ends. */
  public static void main(String[] words) throws Exception {
    System.load(System.getenv(Cuda.LIBRARY_VARIABLE));
    Binding.load().ifPresent(problem -> System.out.println("ERROR " + problem));
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(answer(line.split(" ")));
      System.out.flush();
    }
  }

  private static String answer(String[] w) throws Exception {
    return switch (w[0]) {
      case "reset" -> reset();
      case "init" -> said(JCudaDriver.cuInit(0), "");
      case "context" -> context(Integer.parseInt(w[1]));
      case "nocontext" -> said(JCudaDriver.cuCtxPopCurrent(new CUcontext()), "");
      case "alloc" -> allocated(new Address(), w);
      case "free" -> said(JCudaDriver.cuMemFree(at(w[1])), "");
      case "put" -> put(w[1], w[2], w[3]);
      case "get" -> get(w[1], Integer.parseInt(w[2]));
      case "fetch" -> fetch(w[1], w[2], w[3]);
      case "host" -> "OK " + HexFormat.of().toHexDigits(HOST.get(w[1]).get(0));
      case "stream" -> stream(w[1]);
      case "sync" -> said(JCudaDriver.cuStreamSynchronize(streamOf(w[1])), "");
      case "event" -> event(w[1], Integer.parseInt(w[2]));
      case "record" -> said(JCudaDriver.cuEventRecord(EVENTS.get(w[1]), streamOf(w[2])), "");
      case "wait" -> said(JCudaDriver.cuStreamWaitEvent(streamOf(w[1]), EVENTS.get(w[2]), 0), "");
      case "eventhandle" -> eventHandle(w[1]);
      case "openevent" -> openEvent(w[1], w[2]);
      case "handle" -> handle(w[1]);
      case "open" -> open(w[1], Integer.parseInt(w[2]));
      case "close" -> said(JCudaDriver.cuIpcCloseMemHandle(at(w[1])), "");
      case "range" -> range(w[1]);
      case "touch" -> "OK " + MemoryUtil.getByte(Long.parseLong(w[1]));
      default -> "ERROR unknown word " + w[0];
    };
  }

  private static String said(int code, Object value) {
    return code == CUresult.CUDA_SUCCESS ? ("OK " + value).trim() : CUresult.stringFor(code);
  }

  private static CUdeviceptr at(String address) {
    return new CUdeviceptr().withByteOffset(Long.parseLong(address));
  }

  private static CUstream streamOf(String name) {
    return STREAMS.getOrDefault(name, new CUstream());
  }

  private static String context(int ordinal) {
    CUdevice device = new CUdevice();
    int code = JCudaDriver.cuDeviceGet(device, ordinal);
    CUcontext context = new CUcontext();
    code = code == 0 ? JCudaDriver.cuDevicePrimaryCtxRetain(context, device) : code;
    return said(code == 0 ? JCudaDriver.cuCtxSetCurrent(context) : code, "");
  }

  private static String allocated(Address address, String[] w) {
    long bytes = Long.parseLong(w[1]);
    int code =
        switch (w.length > 2 ? w[2] : "") {
          case "managed" -> JCudaDriver.cuMemAllocManaged(address, bytes, 1);
          case "pool" -> JCudaDriver.cuMemAllocAsync(address, bytes, new CUstream());
          default -> JCudaDriver.cuMemAlloc(address, bytes);
        };
    ALLOCATED.add(address.value());
    return said(code, address.value());
  }

  /** Gives back all there is, in a context; what is already back is refused, which does no harm. */
  private static String reset() {
    context(0);
    STREAMS.values().forEach(JCudaDriver::cuStreamDestroy);
    EVENTS.values().forEach(JCudaDriver::cuEventDestroy);
    OPENED.forEach(address -> JCudaDriver.cuIpcCloseMemHandle(at(String.valueOf(address))));
    ALLOCATED.forEach(address -> JCudaDriver.cuMemFree(at(String.valueOf(address))));
    List.of(STREAMS, EVENTS, HOST).forEach(Map::clear);
    List.of(OPENED, ALLOCATED).forEach(List::clear);
    return "OK";
  }

  /** Copies bytes given in hex to the device, in a stream that is not waited for. */
  private static String put(String address, String hex, String stream) {
    byte[] bytes = HexFormat.of().parseHex(hex);
    ByteBuffer host = ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
    HOST.put("put" + HOST.size(), host); // must outlive the copy
    Pointer from = Pointer.to(host);
    return said(
        JCudaDriver.cuMemcpyHtoDAsync(at(address), from, bytes.length, streamOf(stream)), "");
  }

  private static String get(String address, int length) {
    byte[] bytes = new byte[length];
    int code = JCudaDriver.cuMemcpyDtoH(Pointer.to(bytes), at(address), length);
    return said(code, HexFormat.of().formatHex(bytes));
  }

  /** Copies one byte to host memory of that name, in a stream that is not waited for. */
  private static String fetch(String address, String name, String stream) {
    ByteBuffer host = HOST.computeIfAbsent(name, n -> ByteBuffer.allocateDirect(1));
    return said(
        JCudaDriver.cuMemcpyDtoHAsync(Pointer.to(host), at(address), 1, streamOf(stream)), "");
  }

  private static String stream(String name) {
    CUstream stream = new CUstream();
    int code = JCudaDriver.cuStreamCreate(stream, 1);
    STREAMS.put(name, stream);
    return said(code, "");
  }

  private static String event(String name, int flags) {
    CUevent event = new CUevent();
    int code = JCudaDriver.cuEventCreate(event, flags);
    EVENTS.put(name, event);
    return said(code, "");
  }

  private static byte[] reserved(Object handle) throws ReflectiveOperationException {
    var field = handle.getClass().getDeclaredField("reserved");
    field.setAccessible(true);
    return (byte[]) field.get(handle);
  }

  private static String handle(String address) throws Exception {
    CUipcMemHandle handle = new CUipcMemHandle();
    int code = JCudaDriver.cuIpcGetMemHandle(handle, at(address));
    return said(code, HexFormat.of().formatHex(reserved(handle)));
  }

  private static String open(String hex, int flags) throws Exception {
    CUipcMemHandle handle = new CUipcMemHandle();
    byte[] bytes = HexFormat.of().parseHex(hex);
    System.arraycopy(bytes, 0, reserved(handle), 0, bytes.length);
    Address address = new Address();
    int code = JCudaDriver.cuIpcOpenMemHandle(address, handle, flags);
    OPENED.add(address.value());
    return said(code, address.value());
  }

  private static String eventHandle(String name) throws Exception {
    CUipcEventHandle handle = new CUipcEventHandle();
    int code = JCudaDriver.cuIpcGetEventHandle(handle, EVENTS.get(name));
    return said(code, HexFormat.of().formatHex(reserved(handle)));
  }

  private static String openEvent(String name, String hex) throws Exception {
    CUipcEventHandle handle = new CUipcEventHandle();
    byte[] bytes = HexFormat.of().parseHex(hex);
    System.arraycopy(bytes, 0, reserved(handle), 0, bytes.length);
    CUevent event = new CUevent();
    int code = JCudaDriver.cuIpcOpenEventHandle(event, handle);
    EVENTS.put(name, event);
    return said(code, "");
  }

  private static String range(String address) {
    long[] size = new long[1];
    Address base = new Address();
    int code = JCudaDriver.cuMemGetAddressRange(base, size, at(address));
    return said(code, base.value() + " " + size[0]);
  }
}
