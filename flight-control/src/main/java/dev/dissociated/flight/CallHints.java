package dev.dissociated.flight;

import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.Optional;
import java.util.Set;
import org.apache.arrow.flight.CallHeaders;
import org.apache.arrow.flight.FlightConstants;
import org.apache.arrow.flight.FlightProducer.CallContext;
import org.apache.arrow.flight.ServerHeaderMiddleware;

/**
 * What a client says of itself in the headers of every call.
 *
 * @param schemes the transports it understands; empty for an ordinary Flight client
 * @param target the location by which it reached the server
 * @param identity who it is, as authentication knows it; empty for nobody
 */
record CallHints(Set<String> schemes, Optional<String> target, String identity) {
  static final String ACCEPT = "x-dissociated-accept";
  static final String TARGET = "x-dissociated-target";

  /** The hints of a call; none when its headers cannot be seen. */
  static CallHints of(CallContext context) {
    String identity = context.peerIdentity() == null ? "" : context.peerIdentity();
    ServerHeaderMiddleware middleware = context.getMiddleware(FlightConstants.HEADER_KEY);
    CallHeaders headers = middleware == null ? null : middleware.headers();
    String accept = headers == null ? null : headers.get(ACCEPT);
    if (accept == null) {
      return new CallHints(Set.of(), Optional.empty(), identity);
    }
    Set<String> schemes = new LinkedHashSet<>();
    Arrays.stream(accept.split(",")).map(String::trim).forEach(schemes::add);
    schemes.remove("");
    return new CallHints(schemes, Optional.ofNullable(headers.get(TARGET)), identity);
  }

  /** Whether the client knows of this project at all. */
  boolean asked() {
    return !schemes.isEmpty();
  }
}
