package dev.dissociated.store;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** What goes together: many small puts, and ends of leases. */
final class BatchedTest {
  private static Map<String, byte[]> objects(int count) {
    Map<String, byte[]> objects = new LinkedHashMap<>();
    for (int i = 0; i < count; i++) {
      byte[] bytes = new byte[i % 200];
      java.util.Arrays.fill(bytes, (byte) i);
      objects.put("o" + i, bytes);
    }
    return objects;
  }

  private static void shouldHold(StoreClient client, String name, byte[] bytes) {
    try (StoreObject object = client.get(name)) {
      assertArrayEquals(bytes, object.toByteArray(), name);
    }
  }

  @Test
  void shouldPutManyInOneGo() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      Map<String, byte[]> objects = objects(3000);
      objects.put("large", new byte[200_000]);
      client.putAll(objects, PutOptions.DEFAULT);
      assertEquals(objects.size(), fixture.store.usage().objects());
      objects.forEach((name, bytes) -> shouldHold(client, name, bytes));
    }
  }

  @Test
  void shouldPutTheOthersWhereOneFails() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      client.put("o7", new byte[] {1});
      client.put("o900", new byte[] {2});
      StoreFixture.shouldFail(
          Code.ALREADY_EXISTS, () -> client.putAll(objects(1000), PutOptions.DEFAULT));
      assertEquals(1000, fixture.store.usage().objects());
      shouldHold(client, "o7", new byte[] {1});
      client.putAll(objects(1000), PutOptions.DEFAULT.replacing());
      shouldHold(client, "o7", objects(8).get("o7"));
    }
  }

  @Test
  void shouldTellOfEndedLeasesWithoutAnotherRequest() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      client.put("held", new byte[100]);
      for (int count : new int[] {1, 5, 200, 1}) {
        List<StoreObject> held = new ArrayList<>();
        for (int i = 0; i < count; i++) {
          held.add(client.get("held"));
        }
        assertEquals(count, fixture.store.usage().leases());
        held.forEach(StoreObject::close);
        StoreFixture.await("no lease left", () -> fixture.store.usage().leases() == 0);
      }
    }
  }

  @Test
  void shouldEndLeasesBeforeTheRequestThatFollows() {
    try (StoreFixture fixture = new StoreFixture();
        StoreClient client = fixture.client()) {
      client.put("held", new byte[100]);
      for (int i = 0; i < 100; i++) {
        client.get("held").close();
        assertEquals(0, client.usage().leases());
      }
    }
  }
}
