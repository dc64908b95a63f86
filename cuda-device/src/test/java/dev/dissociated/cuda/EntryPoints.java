package dev.dissociated.cuda;

import java.util.LinkedHashMap;
import java.util.Map;

/** Everything that users can call and that needs CUDA. */
final class EntryPoints {
  private EntryPoints() {}

  static Map<String, Runnable> all() {
    Map<String, Runnable> calls = new LinkedHashMap<>();
    calls.put("require", Cuda::require);
    calls.put("devices", Cuda::devices);
    calls.put("device", () -> Cuda.device(0));
    return calls;
  }
}
