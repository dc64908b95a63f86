package dev.dissociated.tests;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.dissociated.flight.ClientBuilder;
import dev.dissociated.flight.DissociatedClient;
import java.util.function.Predicate;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** What a server says of its connections. */
final class Stat {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String uri;
  private final String user;

  /**
   * Asks at a place.
   *
   * @param user who logs in; null where nobody need
   */
  Stat(String uri, String user) {
    this.uri = uri;
    this.user = user;
  }

  JsonNode now() throws Exception {
    try (BufferAllocator allocator = new RootAllocator()) {
      ClientBuilder builder = DissociatedClient.builder(allocator, uri);
      if (user != null) {
        builder.basicAuth(user, user);
      }
      try (DissociatedClient client = builder.build()) {
        return JSON.readTree(client.stat());
      }
    }
  }

  /** Waits, with a bound, until the first transport lends no memory any more. */
  void awaitNoMemory() throws Exception {
    Await.until(
        "memory is given back",
        () -> now().get("transports").get(0).get("memory_used").asLong() == 0);
  }

  /** Waits, with a bound, until the connections are as wanted. */
  JsonNode await(Predicate<JsonNode> wanted) throws Exception {
    JsonNode[] last = new JsonNode[1];
    try {
      Await.until(
          "the connections are as wanted",
          () -> {
            last[0] = now().get("streams");
            return wanted.test(last[0]);
          });
    } catch (AssertionError e) {
      throw new AssertionError("the server still says: " + last[0], e);
    }
    return last[0];
  }
}
