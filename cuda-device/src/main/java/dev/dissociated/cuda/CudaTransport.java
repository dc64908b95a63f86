package dev.dissociated.cuda;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.device.DeviceReader;
import dev.dissociated.protocol.device.DeviceTransport;
import dev.dissociated.protocol.stream.MetadataSource;
import dev.dissociated.protocol.stream.ReferenceReader;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.MemoryUsage;
import dev.dissociated.protocol.transport.Transport;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceLoader;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.ipc.ArrowReader;

/**
 * Streams in a GPU's memory between processes of one host: {@code
 * cuda:///path/to.sock?want_data=..&free_data=..&remote_handle=..&exporter=..&device=..}.
 *
 * <p>Messages go through the socket as those of shared memory do, and take its properties; bodies
 * stay on the device. Which memory a stream lies in is said by its own location ({@link
 * dev.dissociated.protocol.stream.StreamSource#at}); streams that lie in host memory come packed.
 */
public final class CudaTransport implements DeviceTransport {
  /** As found by the service loader. */
  public CudaTransport() {}

  @Override
  public String scheme() {
    return CudaLocation.SCHEME;
  }

  @Override
  public Optional<String> unavailable() {
    Optional<String> reason = Cuda.unavailable().map(why -> "CUDA not available: " + why);
    if (reason.isPresent()) {
      return reason;
    }
    Optional<Transport> carrier = findCarrier();
    return carrier.isEmpty()
        ? Optional.of("its messages need transport-shm, which is not on the class path")
        : carrier.get().unavailable();
  }

  @Override
  public String description() {
    return Cuda.description();
  }

  private static Optional<Transport> findCarrier() {
    for (Transport transport : ServiceLoader.load(Transport.class)) {
      if (transport.scheme().equals(CudaLocation.CARRIER)) {
        return Optional.of(transport);
      }
    }
    return Optional.empty();
  }

  private Transport carrier() {
    unavailable()
        .ifPresent(
            reason -> {
              throw new DissociatedException(Code.UNSUPPORTED, reason);
            });
    return findCarrier().orElseThrow();
  }

  @Override
  public Listener listen(ListenOptions options, Acceptor acceptor) {
    Map<String, String> properties = new HashMap<>(options.properties());
    properties.putIfAbsent("warm", "0"); // no body ever lies in the carrier's memory
    Listener carrier =
        carrier()
            .listen(
                new ListenOptions(options.address(), options.memoryLimit(), properties),
                connection -> {
                  CudaServerConnection own = new CudaServerConnection(connection);
                  return own.watching(acceptor.accept(own));
                });
    return new CarriedListener(carrier);
  }

  private record CarriedListener(Listener carrier) implements Listener {
    @Override
    public DissociatedUri location() {
      return CudaLocation.over(carrier.location());
    }

    @Override
    public ArrowBuf allocatePublic(long bytes) {
      return null;
    }

    @Override
    public MemoryUsage memoryUsage() {
      long reserved = DeviceArena.reserved();
      return new MemoryUsage(MemoryLimit.limit(), reserved, reserved);
    }

    @Override
    public void close() {
      carrier.close();
    }
  }

  @Override
  public Connection connect(DissociatedUri location) {
    Cuda.require();
    DissociatedUri below = CudaLocation.carrierOf(location);
    Transport carrier = carrier();
    Optional<CudaLocation> memory = CudaLocation.of(location);
    Connection connection = carrier.connect(below);
    try {
      return new CudaClientConnection(connection, memory.map(DeviceImport::open));
    } catch (RuntimeException e) {
      connection.close();
      connection.remoteMemory().close();
      throw e;
    }
  }

  @Override
  public boolean showsMemory(DissociatedUri location) {
    return CudaLocation.of(location).isPresent();
  }

  @Override
  public DeviceReader read(
      BufferAllocator allocator,
      Connection connection,
      byte[] ticket,
      Optional<MetadataSource> metadata) {
    Cuda.require();
    if (!(connection instanceof CudaClientConnection own)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "not a connection to device memory, peer=" + connection.peer());
    }
    return new CudaReader(own, new ReferenceReader(allocator, connection, ticket, metadata));
  }

  @Override
  public DeviceReader upload(ArrowReader host) {
    return new UploadReader(Cuda.device(0), host);
  }
}
