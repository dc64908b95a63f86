package dev.dissociated.protocol.transport.loopback;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Acceptor;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import dev.dissociated.protocol.transport.Transport;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;

/** Connections within this process; locations look like {@code loopback://name?want_data=..}. */
public final class LoopbackTransport implements Transport {
  static final String SCHEME = "loopback";

  private static final Map<String, LoopbackListener> LISTENERS = new ConcurrentHashMap<>();

  /** For {@link java.util.ServiceLoader}. */
  public LoopbackTransport() {}

  @Override
  public String scheme() {
    return SCHEME;
  }

  @Override
  public Optional<String> unavailable() {
    return Optional.empty();
  }

  @Override
  public Listener listen(ListenOptions options, Acceptor acceptor) {
    String name = options.address().isEmpty() ? UUID.randomUUID().toString() : options.address();
    LoopbackListener listener = new LoopbackListener(name, options, acceptor, LISTENERS::remove);
    if (LISTENERS.putIfAbsent(name, listener) != null) {
      listener.close();
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "cannot listen: the name is taken, name=" + name);
    }
    return listener;
  }

  @Override
  public Connection connect(DissociatedUri location) {
    LoopbackListener listener = LISTENERS.get(location.authority());
    if (listener == null) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "cannot connect: nobody listens there, location=" + location);
    }
    if (location.wantData().isPresent() && !listener.knows(location.wantData().get())) {
      throw new DissociatedException(
          Code.UNAVAILABLE, "not the server that advertised the location, location=" + location);
    }
    return listener.connect(location.wantData());
  }
}
