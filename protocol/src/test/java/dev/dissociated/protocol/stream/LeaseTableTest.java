package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicInteger;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import org.junit.jupiter.api.Test;

class LeaseTableTest {
  private static MessageBody body(int buffers, Runnable onRelease) {
    long[] lengths = new long[buffers];
    Arrays.fill(lengths, 8);
    return body(lengths, onRelease);
  }

  private static MessageBody body(long[] lengths, Runnable onRelease) {
    long[] zeros = new long[lengths.length];
    return new MessageBody(zeros, lengths, zeros.clone(), 0, Lifetime.RETAINED, onRelease);
  }

  /** One lent batch in the model. */
  private static final class Lent {
    int left;
    boolean released;
  }

  /** Any sequence of lending and freeing, checked against the obvious implementation. */
  @Property(tries = 200)
  void shouldAgreeWithASimpleModel(@ForAll long seed) {
    Random random = new Random(seed);
    LeaseTable table = new LeaseTable();
    Map<Long, List<Lent>> model = new HashMap<>();
    Map<Long, Integer> residents = new HashMap<>();
    long refused = 0;
    List<Lent> all = new ArrayList<>();
    for (int step = 0; step < 500; step++) {
      int count = 1 + random.nextInt(4);
      long[] addresses = new long[count];
      long[] lengths = new long[count];
      for (int i = 0; i < count; i++) {
        addresses[i] = random.nextInt(40) * 8L;
        lengths[i] = random.nextInt(4);
      }
      switch (random.nextInt(4)) {
        case 0 -> {
          if (Arrays.stream(lengths).sum() == 0) {
            continue;
          }
          Lent lent = new Lent();
          all.add(lent);
          assertTrue(table.lend(body(lengths, () -> lent.released = true), addresses, 10));
          for (int i = 0; i < count; i++) {
            if (lengths[i] > 0) {
              model.computeIfAbsent(addresses[i], a -> new ArrayList<>()).add(lent);
              lent.left++;
            }
          }
        }
        case 1 -> {
          assertTrue(table.lendResident(body(lengths, () -> {}), addresses));
          for (int i = 0; i < count; i++) {
            if (lengths[i] > 0) {
              residents.merge(addresses[i], 1, Integer::sum);
            }
          }
        }
        default -> {
          long before = table.bytes();
          long given = table.release(addresses);
          assertEquals(before - given, table.bytes());
          for (long address : addresses) {
            List<Lent> holders = model.getOrDefault(address, new ArrayList<>());
            if (!holders.isEmpty()) {
              // Which of several leases of one address ends is the table's affair: the newest.
              holders.remove(holders.size() - 1).left--;
            } else if (residents.getOrDefault(address, 0) > 0) {
              residents.merge(address, -1, Integer::sum);
            } else {
              refused++;
            }
          }
        }
      }
      long outstanding =
          model.values().stream().mapToLong(List::size).sum()
              + residents.values().stream().mapToLong(i -> i).sum();
      assertEquals(outstanding, table.outstanding());
      assertEquals(refused, table.refused());
      assertEquals(all.stream().filter(lent -> lent.left > 0).count() * 10, table.bytes());
      all.forEach(lent -> assertEquals(lent.left == 0, lent.released));
    }
    table.releaseAll();
    all.forEach(lent -> assertTrue(lent.released));
    assertEquals(0, table.outstanding());
    assertEquals(0, table.bytes());
    assertFalse(table.lend(body(1, () -> {}), new long[] {8}, 10));
    assertFalse(table.lendResident(body(1, () -> {}), new long[] {8}));
  }

  @Test
  void shouldHoldAHundredThousandLeases() {
    LeaseTable table = new LeaseTable();
    AtomicInteger released = new AtomicInteger();
    int count = 100_000;
    for (int round = 0; round < 2; round++) {
      for (int i = 0; i < count; i++) {
        long[] address = {(1L << 40) + i * 64L};
        assertTrue(table.lend(body(1, released::incrementAndGet), address, 1));
      }
      assertEquals(count, table.outstanding());
      for (int i = count - 1; i >= 0; i--) {
        assertEquals(1, table.release(new long[] {(1L << 40) + i * 64L}));
      }
      assertEquals(count * (round + 1), released.get());
      assertEquals(0, table.outstanding());
      assertEquals(0, table.bytes());
    }
    assertEquals(0, table.refused());
  }

  @Test
  void shouldReleaseEveryBodyOnceWhenFreesRaceWithTheEnd() throws InterruptedException {
    for (int round = 0; round < 200; round++) {
      LeaseTable table = new LeaseTable();
      AtomicInteger released = new AtomicInteger();
      int count = 200;
      long[] addresses = new long[count];
      for (int i = 0; i < count; i++) {
        addresses[i] = i * 8L;
        table.lend(body(1, released::incrementAndGet), new long[] {addresses[i]}, 1);
      }
      CountDownLatch go = new CountDownLatch(1);
      Thread frees =
          new Thread(
              () -> {
                try {
                  go.await();
                } catch (InterruptedException e) {
                  return;
                }
                for (long address : addresses) {
                  table.release(new long[] {address});
                }
              });
      frees.start();
      go.countDown();
      table.releaseAll();
      frees.join();
      assertEquals(count, released.get());
    }
  }

  @Test
  void shouldReleaseTheOthersWhenAnOwnerThrows() {
    LeaseTable table = new LeaseTable();
    AtomicInteger released = new AtomicInteger();
    for (int i = 0; i < 10; i++) {
      boolean throwing = i == 3;
      table.lend(
          body(
              1,
              () -> {
                released.incrementAndGet();
                if (throwing) {
                  throw new IllegalStateException("an owner's defect");
                }
              }),
          new long[] {i * 8L},
          1);
    }
    assertThrows(IllegalStateException.class, table::releaseAll);
    assertEquals(10, released.get());
    table.releaseAll();
    assertEquals(10, released.get());
  }
}
