package dev.dissociated.flight;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.Criteria;
import org.apache.arrow.flight.FlightDescriptor;
import org.apache.arrow.flight.FlightEndpoint;
import org.apache.arrow.flight.FlightInfo;
import org.apache.arrow.flight.NoOpFlightProducer;
import org.apache.arrow.flight.Ticket;
import org.apache.arrow.vector.types.pojo.Schema;

/** A producer whose streams are what a test says. */
class TestProducer extends NoOpFlightProducer {
  /** What a stream does. */
  interface Body {
    void run(CallContext context, ServerStreamListener out) throws Exception;
  }

  final Map<String, Body> streams = new ConcurrentHashMap<>();
  final Map<String, FlightInfo> infos = new ConcurrentHashMap<>();
  final AtomicInteger started = new AtomicInteger();

  TestProducer stream(String name, Body body) {
    streams.put(name, body);
    return this;
  }

  @Override
  public void getStream(CallContext context, Ticket ticket, ServerStreamListener listener) {
    started.incrementAndGet();
    Body body = streams.get(new String(ticket.getBytes(), java.nio.charset.StandardCharsets.UTF_8));
    if (body == null) {
      throw CallStatus.NOT_FOUND.withDescription("no such flight").toRuntimeException();
    }
    try {
      body.run(context, listener);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  @Override
  public FlightInfo getFlightInfo(CallContext context, FlightDescriptor descriptor) {
    String name = descriptor.getPath().get(0);
    FlightInfo info = infos.get(name);
    if (info != null) {
      return info;
    }
    if (!streams.containsKey(name)) {
      throw CallStatus.NOT_FOUND.withDescription("no such flight").toRuntimeException();
    }
    return new FlightInfo(
        (Schema) null, descriptor, List.of(new FlightEndpoint(ticket(name))), -1, -1);
  }

  @Override
  public void listFlights(
      CallContext context, Criteria criteria, StreamListener<FlightInfo> listener) {
    streams.keySet().stream()
        .sorted()
        .map(name -> getFlightInfo(context, FlightDescriptor.path(name)))
        .forEach(listener::onNext);
    listener.onCompleted();
  }

  static Ticket ticket(String name) {
    return new Ticket(name.getBytes(java.nio.charset.StandardCharsets.UTF_8));
  }
}
