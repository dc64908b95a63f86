package dev.dissociated.benchmarks.compare;

import com.fasterxml.jackson.databind.JsonNode;
import dev.dissociated.benchmarks.agent.Ticket;
import dev.dissociated.benchmarks.agent.Ticket.Source;
import java.io.IOException;

/**
 * Who reads what from whom.
 *
 * @param place under which name the server says where it listens
 * @param via scheme of the transport
 * @param metadata inline, flight, or doget for plain Flight
 */
record Way(
    String name,
    AgentProcess consumer,
    AgentProcess server,
    String place,
    String via,
    Source source,
    String metadata) {
  static final String DOGET = "doget";

  /** This project's, by shared memory. */
  static Way shared(
      String name, AgentProcess consumer, AgentProcess server, Source source, String metadata) {
    return new Way(name, consumer, server, "tcp", "shm", source, metadata);
  }

  /** Plain Flight. */
  static Way flight(String name, AgentProcess consumer, AgentProcess server, String place) {
    return new Way(name, consumer, server, place, "flight", Source.ORDINARY, DOGET);
  }

  /** The same under another name, of another source. */
  Way of(String newName, Source newSource) {
    return new Way(newName, consumer, server, place, via, newSource, metadata);
  }

  boolean isDoGet() {
    return metadata.equals(DOGET);
  }

  /** Makes the data, so that no measurement pays for it. */
  void prepare(Ticket ticket) throws IOException {
    server.revive();
    server.ask("prepare", "ticket", ticket);
  }

  /** Has the consumer do {@code operation} with this way's streams; keys and values alternate. */
  JsonNode ask(String operation, Ticket ticket, Object... more) {
    Object[] all = new Object[8 + more.length];
    Object[] own = {"uri", server.place(place), "via", via, "metadata", metadata, "ticket", ticket};
    System.arraycopy(own, 0, all, 0, own.length);
    System.arraycopy(more, 0, all, own.length, more.length);
    return consumer.ask(operation, all);
  }

  /** Reads a whole stream. */
  JsonNode read(Ticket ticket, boolean sum) {
    return ask("stream", ticket, "sum", sum);
  }
}
