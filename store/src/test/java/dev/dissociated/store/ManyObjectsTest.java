package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.await;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Arrays;
import java.util.function.IntConsumer;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** What a store that is full of small objects costs. */
class ManyObjectsTest {
  private static final int MANY = 100_000;
  private static final int FEW = 1000;
  private static final int SAMPLES = 3000;
  private static final int BYTES = 100;

  private static String name(int i) {
    return "objects/" + i;
  }

  private static long heap() throws InterruptedException {
    long least = Long.MAX_VALUE;
    for (int i = 0; i < 5; i++) {
      System.gc();
      Thread.sleep(50);
      Runtime runtime = Runtime.getRuntime();
      least = Math.min(least, runtime.totalMemory() - runtime.freeMemory());
    }
    return least;
  }

  /** Daemon and client are one process here, so this is more than the daemon needs. */
  @Test
  @Tag("slow")
  void shouldKeepLittleBesideAHundredThousandObjects() throws Exception {
    try (StoreFixture fixture = new StoreFixture(256L << 20, StoreOptions.DEFAULT);
        StoreClient client = fixture.client()) {
      for (int i = 0; i < FEW; i++) {
        client.put(name(i), new byte[BYTES]);
      }
      long before = heap();
      for (int i = FEW; i < MANY; i++) {
        client.put(name(i), new byte[BYTES]);
      }
      long each = (heap() - before) / (MANY - FEW);
      assertTrue(each <= 1024, "bytes of heap per object: " + each);
      System.out.println("bytes of heap per object: " + each);
      assertEquals(MANY, client.usage().objects());
      assertEquals(MANY, client.list("objects/").size());
      for (int i = 0; i < MANY; i++) {
        client.delete(name(i));
      }
      await("all to be free", () -> client.usage().used() == 0);
    }
  }

  /** Prints what single operations take among few and among many objects, in microseconds. */
  public static void main(String[] arguments) {
    try (StoreFixture fixture = new StoreFixture(512L << 20, StoreOptions.DEFAULT);
        StoreClient client = fixture.client()) {
      int count = 0;
      for (int size : new int[] {FEW, FEW, MANY}) { // the first time is for the compiler
        for (; count < size; count++) {
          client.put(name(count), new byte[BYTES]);
        }
        int objects = count;
        time(objects, "put", i -> client.put("new/" + i, new byte[BYTES]));
        time(objects, "get", i -> client.get(name(i * 7919 % objects)).close());
        time(objects, "stat", i -> client.stat(name(i * 7919 % objects)));
        time(objects, "usage", i -> client.usage());
        time(objects, "delete", i -> client.delete("new/" + i));
      }
    }
  }

  private static void time(int objects, String what, IntConsumer operation) {
    long[] nanos = new long[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
      long start = System.nanoTime();
      operation.accept(i);
      nanos[i] = System.nanoTime() - start;
    }
    Arrays.sort(nanos);
    System.out.printf(
        "%,d objects: %s p50 %.1f us, p99 %.1f us%n",
        objects, what, nanos[SAMPLES / 2] / 1e3, nanos[SAMPLES * 99 / 100] / 1e3);
  }
}
