package dev.dissociated.cuda;

import com.sun.jna.NativeLibrary;
import com.sun.jna.ptr.IntByReference;
import java.io.File;
import java.util.List;
import java.util.Optional;
import jcuda.driver.CUresult;

/**
 * Finds the driver and asks it, without any chance of a crash, whether it will do: the binding
 * calls functions without looking whether they are there, and one that is not ends the JVM.
 *
 * @param failure why CUDA cannot be used; empty when it can
 * @param version as the driver writes it: 1000 times the major version, 10 times the minor one
 */
record DriverProbe(Optional<String> failure, int version, int devices) {
  private static final String LIBRARY = "libcuda.so.1";

  /** The oldest driver that can say whether memory has an IPC handle. */
  private static final int OLDEST = 11000;

  private static final List<String> FUNCTIONS =
      List.of(
          "cuInit",
          "cuDriverGetVersion",
          "cuDeviceGetCount",
          "cuDeviceGet",
          "cuDeviceGetName",
          "cuDeviceGetUuid",
          "cuDeviceTotalMem_v2",
          "cuDevicePrimaryCtxRetain",
          "cuDevicePrimaryCtxRelease_v2",
          "cuCtxPushCurrent_v2",
          "cuCtxPopCurrent_v2",
          "cuCtxSynchronize",
          "cuMemAlloc_v2",
          "cuMemFree_v2",
          "cuMemGetInfo_v2",
          "cuMemGetAddressRange_v2",
          "cuPointerGetAttribute",
          "cuMemcpyHtoDAsync_v2",
          "cuMemcpyDtoHAsync_v2",
          "cuMemcpyDtoDAsync_v2",
          "cuStreamCreate",
          "cuStreamDestroy_v2",
          "cuStreamSynchronize",
          "cuStreamWaitEvent",
          "cuEventCreate",
          "cuEventDestroy_v2",
          "cuEventRecord",
          "cuEventQuery",
          "cuIpcGetMemHandle",
          "cuIpcOpenMemHandle_v2",
          "cuIpcCloseMemHandle",
          "cuIpcGetEventHandle",
          "cuIpcOpenEventHandle");

  /** Made once, when first asked. */
  private static final class Holder {
    /** Keeps the driver loaded: JNA unloads what nobody holds. */
    private static NativeLibrary driver;

    static final DriverProbe RESULT = probe();

    private static DriverProbe probe() {
      String system = System.getProperty("os.name");
      String machine = System.getProperty("os.arch");
      if (!system.equals("Linux") || !machine.matches("amd64|x86_64")) {
        return no("it needs Linux on amd64, this is " + system + " on " + machine);
      }
      try {
        return ask();
      } catch (LinkageError | RuntimeException e) {
        return no("the driver does not load: " + firstLine(e));
      }
    }

    private static DriverProbe ask() {
      String named =
          System.getProperty(Cuda.LIBRARY_PROPERTY, System.getenv(Cuda.LIBRARY_VARIABLE));
      boolean isNamed = named != null && !named.isEmpty();
      try {
        driver = NativeLibrary.getInstance(isNamed ? new File(named).getAbsolutePath() : LIBRARY);
      } catch (UnsatisfiedLinkError e) {
        return no(
            isNamed
                ? "the library named does not load: " + firstLine(e) + ", library=" + named
                : "no driver is installed: " + LIBRARY + " was not found");
      }
      Optional<String> missing = FUNCTIONS.stream().filter(name -> !has(name)).findFirst();
      if (missing.isPresent()) {
        return no("the driver is too old, it lacks " + missing.get());
      }
      IntByReference version = new IntByReference();
      call("cuDriverGetVersion", version);
      int code = call("cuInit", 0);
      if (code != CUresult.CUDA_SUCCESS) {
        return no("the driver does not start: " + CUresult.stringFor(code));
      }
      if (version.getValue() < OLDEST) {
        return no("the driver is too old, version=" + version.getValue() + " needed=" + OLDEST);
      }
      IntByReference count = new IntByReference();
      code = call("cuDeviceGetCount", count);
      if (code != CUresult.CUDA_SUCCESS || count.getValue() < 1) {
        return no("the driver has no device: " + CUresult.stringFor(code));
      }
      Optional<String> binding = Binding.load();
      return binding.isPresent()
          ? no(binding.get())
          : new DriverProbe(Optional.empty(), version.getValue(), count.getValue());
    }

    private static boolean has(String function) {
      try {
        driver.getFunction(function);
        return true;
      } catch (UnsatisfiedLinkError e) {
        return false;
      }
    }

    private static int call(String function, Object argument) {
      return driver.getFunction(function).invokeInt(new Object[] {argument});
    }

    private static DriverProbe no(String reason) {
      return new DriverProbe(Optional.of(reason), 0, 0);
    }
  }

  static String firstLine(Throwable failure) {
    String text = failure.getMessage() == null ? failure.toString() : failure.getMessage();
    return text.lines().findFirst().orElse("");
  }

  static DriverProbe result() {
    try {
      return Holder.RESULT;
    } catch (LinkageError e) { // JNA itself, or what a failed first attempt left behind
      return new DriverProbe(Optional.of("JNA does not load here: " + firstLine(e)), 0, 0);
    }
  }
}
