package dev.dissociated.tests;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.dissociated.flight.DissociatedClient;
import java.util.function.Predicate;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** What a server that wants a login says of its connections. */
final class Stat {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final String uri;
  private final String user;

  Stat(String uri, String user) {
    this.uri = uri;
    this.user = user;
  }

  JsonNode now() throws Exception {
    try (BufferAllocator allocator = new RootAllocator();
        DissociatedClient client =
            DissociatedClient.builder(allocator, uri).basicAuth(user, user).build()) {
      return JSON.readTree(client.stat());
    }
  }

  long memoryUsed() throws Exception {
    return now().get("transports").get(0).get("memory_used").asLong();
  }

  /** Waits, with a bound, until the connections are as wanted. */
  JsonNode await(Predicate<JsonNode> wanted) throws Exception {
    JsonNode last = null;
    for (long deadline = System.nanoTime() + 15_000_000_000L; System.nanoTime() < deadline; ) {
      last = now().get("streams");
      if (wanted.test(last)) {
        return last;
      }
      Thread.sleep(50);
    }
    throw new AssertionError("the server still says: " + last);
  }
}
