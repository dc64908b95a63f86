package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.ListenOptions;
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
    calls.put("on", () -> DeviceTable.on(null, Tables.SCHEMA, null));
    calls.put("copyOf", () -> DeviceTable.copyOf(null, null, null));
    calls.put("live", () -> LiveDeviceSource.on(null, Tables.SCHEMA, null, 1, null));
    calls.put("export", () -> ArrowDeviceStreams.export(null, 0));
    CudaTransport transport = new CudaTransport();
    calls.put("listen", () -> transport.listen(ListenOptions.anywhere(1 << 20), null));
    calls.put("connect", () -> transport.connect(DissociatedUri.of("cuda", "", "/none.sock")));
    calls.put("read", () -> transport.read(null, null, null, null));
    calls.put("upload", () -> transport.upload(null));
    return calls;
  }
}
