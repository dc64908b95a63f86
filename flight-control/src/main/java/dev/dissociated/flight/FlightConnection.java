package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.apache.arrow.flight.ActionType;
import org.apache.arrow.flight.CallOption;
import org.apache.arrow.flight.FlightClient;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.auth2.BasicAuthCredentialWriter;
import org.apache.arrow.flight.grpc.CredentialCallOption;

/** One Flight server, as a client is connected to it. Thread-safe. */
final class FlightConnection implements AutoCloseable {
  private final FlightClient client;
  private final Optional<Location> location;
  private final CallOption[] options;
  private final Runnable afterwards;
  private Boolean dissociated;

  private FlightConnection(
      FlightClient client, Optional<Location> location, CallOption[] options, Runnable afterwards) {
    this.client = client;
    this.location = location;
    this.options = options;
    this.afterwards = afterwards;
  }

  /** Uses a client that somebody else owns. */
  static FlightConnection over(
      FlightClient client, Optional<Location> location, ClientBuilder builder) {
    List<CallOption> options = new ArrayList<>(builder.callOptions());
    options.add(builder.hints(location));
    return new FlightConnection(client, location, options.toArray(CallOption[]::new), null);
  }

  /** Connects and authenticates. */
  static FlightConnection open(
      org.apache.arrow.memory.BufferAllocator allocator, Location location, ClientBuilder builder) {
    FlightAddress.Opened opened = FlightAddress.open(allocator, location, builder);
    FlightClient client = opened.client();
    try {
      List<CallOption> options = new ArrayList<>(builder.callOptions());
      builder.onConnect.accept(client);
      if (builder.user != null) {
        CredentialCallOption basic =
            new CredentialCallOption(new BasicAuthCredentialWriter(builder.user, builder.password));
        // A server that hands out no bearer token is told the password with each call.
        options.add(client.authenticateBasicToken(builder.user, builder.password).orElse(basic));
      }
      return new FlightConnection(
          client, Optional.of(location), options.toArray(CallOption[]::new), opened.afterwards());
    } catch (RuntimeException e) {
      close(client, opened.afterwards());
      throw FlightErrors.received("cannot authenticate", e);
    }
  }

  FlightClient client() {
    return client;
  }

  CallOption[] options() {
    return options.clone();
  }

  boolean isAt(Location other) {
    return location.isPresent() && LocationDecorator.sameServer(location.get(), other);
  }

  /** Whether this server knows of exchanges; asked once. */
  synchronized boolean isDissociated() {
    if (dissociated == null) {
      dissociated = listsStat();
    }
    return dissociated;
  }

  private boolean listsStat() {
    boolean found = false;
    try {
      for (ActionType action : client.listActions(options)) {
        found |= action.getType().equals(DissociatedProducer.STAT_ACTION);
      }
    } catch (FlightRuntimeException e) {
      // Many producers do not implement this: what came before the failure counts.
    }
    return found;
  }

  @Override
  public void close() {
    if (afterwards != null) {
      close(client, afterwards);
    }
  }

  private static void close(FlightClient client, Runnable afterwards) {
    try {
      client.close();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "interrupted while closing", e);
    } finally {
      afterwards.run();
    }
  }
}
