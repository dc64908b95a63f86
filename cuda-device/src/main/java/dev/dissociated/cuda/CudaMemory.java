package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceAllocation;
import dev.dissociated.protocol.device.DeviceHandle;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.device.DeviceMemory;
import dev.dissociated.protocol.device.DeviceRecordBatch;
import dev.dissociated.protocol.stream.ReferencedBatch;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.UUID;
import org.apache.arrow.vector.types.pojo.Schema;

/** Device memory by CUDA. Found by the service loader; thread-safe. */
public final class CudaMemory implements DeviceMemory {
  /** As found by the service loader. */
  public CudaMemory() {}

  @Override
  public Optional<String> unavailable() {
    return Cuda.unavailable().map(why -> "CUDA not available: " + why);
  }

  @Override
  public List<UUID> devices() {
    List<UUID> devices = new ArrayList<>();
    for (int i = 0; i < Cuda.devices(); i++) {
      devices.add(Cuda.device(i).uuid());
    }
    return devices;
  }

  @Override
  public long sizeOf(long bytes) {
    return DeviceArena.sizeOf(bytes);
  }

  @Override
  public DeviceAllocation allocate(UUID device, long bytes) {
    CudaDevice found =
        CudaDevice.of(device)
            .orElseThrow(
                () ->
                    new DissociatedException(
                        Code.INVALID_ARGUMENT, "no such device, device=" + device));
    return new Allocated(DeviceArena.allocate(found, bytes));
  }

  private record Allocated(DeviceArena arena) implements DeviceAllocation {
    @Override
    public DeviceHandle handle() {
      return arena.handle();
    }

    @Override
    public void close() {
      arena.close();
    }
  }

  @Override
  public DeviceMapping open(DeviceHandle memory) {
    Cuda.require();
    return new Opened(
        DeviceImport.open(
            new CudaLocation(
                Optional.of(memory.handle()),
                memory.exporter(),
                memory.device(),
                Optional.empty())));
  }

  @Override
  public void afterEndOf(long process, Runnable release) {
    Quarantine.afterEndOf(process, release);
  }

  private record Opened(DeviceImport memory) implements DeviceMapping {
    @Override
    public int device() {
      return memory.device().ordinal();
    }

    @Override
    public long resolve(long offset, long length) {
      return memory.resolve(offset, length);
    }

    @Override
    public void copyIn(long[] to, long[] from, long[] lengths) {
      memory.device().synchronize();
      CudaStream stream = memory.device().copies();
      for (int i = 0; i < to.length; i++) {
        stream.onDevice(to[i], from[i], lengths[i]);
      }
      stream.synchronize();
    }

    @Override
    public void copyToHost(long toHost, long from, long bytes) {
      memory.device().copyToHost(toHost, from, bytes);
    }

    @Override
    public void copyFromHost(long to, long fromHost, long bytes) {
      CudaStream stream = memory.device().copies();
      stream.toDevice(to, fromHost, bytes);
      stream.synchronize();
    }

    @Override
    public void synchronize() {
      memory.device().synchronize();
    }

    @Override
    public DeviceRecordBatch batch(Schema schema, ReferencedBatch said) {
      return new CudaRecordBatch(
          memory.device(), schema, said, said.addresses().clone(), ReadyEvent.NONE, said::close);
    }

    @Override
    public void close() {
      memory.close();
    }
  }
}
