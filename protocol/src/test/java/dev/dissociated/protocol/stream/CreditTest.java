package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class CreditTest {
  private static final Duration NEVER = Duration.ofHours(1);
  private static final Duration AT_ONCE = Duration.ZERO;

  private final LeaseBudget budget = new LeaseBudget(1000);

  @Test
  void shouldAdmitOneBatchHoweverLarge() {
    Credit credit = new Credit(budget, 100, AT_ONCE);
    assertTrue(credit.admit(5000));
    assertFalse(credit.admit(1));
    credit.giveBack(5000);
    assertTrue(budget.tryTake(1000));
  }

  @Test
  void shouldCallAClientAHoarderUntilItFreesAgain() {
    Credit credit = new Credit(budget, 100, AT_ONCE);
    assertTrue(credit.admit(60));
    assertFalse(credit.admit(60));
    // A hoarder is sent packed bodies: its producer need not wait.
    assertTrue(credit.isReady());
    assertFalse(credit.admit(60));
    credit.giveBack(0);
    assertFalse(credit.admit(60));
    credit.giveBack(60);
    assertTrue(credit.admit(60));
  }

  @Test
  void shouldWaitForAClientThatFrees() throws Exception {
    Credit credit = new Credit(budget, 100, NEVER);
    assertTrue(credit.admit(80));
    CompletableFuture<Boolean> waiting = CompletableFuture.supplyAsync(() -> credit.admit(80));
    // Resident data that is freed wakes nobody for good.
    credit.giveBack(0);
    credit.giveBack(80);
    assertTrue(waiting.get(60, TimeUnit.SECONDS));
  }

  @Test
  void shouldWakeAWaitingProducerWhenTheClientIsGone() throws Exception {
    Credit credit = new Credit(budget, 100, NEVER);
    assertTrue(credit.admit(80));
    CompletableFuture<Boolean> waiting = CompletableFuture.supplyAsync(() -> credit.admit(80));
    credit.close();
    assertFalse(waiting.get(60, TimeUnit.SECONDS));
    credit.giveBack(80);
    credit.close();
    assertTrue(budget.tryTake(1000), "everything came back exactly once");
    assertFalse(budget.tryTake(1));
  }

  @Test
  void shouldShareTheBudgetOfAllStreams() throws Exception {
    Credit one = new Credit(budget, 900, NEVER);
    Credit two = new Credit(budget, 900, NEVER);
    assertTrue(one.admit(900));
    assertTrue(two.admit(50), "one batch is always admitted");
    CompletableFuture<Boolean> waiting = CompletableFuture.supplyAsync(() -> two.admit(500));
    one.giveBack(900);
    while (!waiting.isDone()) {
      two.tick();
      Thread.sleep(1);
    }
    assertTrue(waiting.get());
  }

  @Test
  void shouldTellExactlyWhenItBecomesReady() {
    Credit credit = new Credit(budget, 100, NEVER);
    AtomicInteger told = new AtomicInteger();
    credit.onReady(told::incrementAndGet);
    assertTrue(credit.isReady());
    assertTrue(credit.admit(40));
    assertTrue(credit.isReady());
    credit.giveBack(40);
    assertEquals(0, told.get(), "it was ready all along");
    assertTrue(credit.admit(40));
    assertTrue(credit.admit(40));
    assertFalse(credit.isReady(), "another like the last would not fit");
    credit.giveBack(0);
    credit.tick();
    assertEquals(0, told.get());
    credit.giveBack(40);
    assertEquals(1, told.get());
    credit.giveBack(40);
    assertEquals(1, told.get());
  }

  @Test
  void shouldLetAProducerGoOnWhoseClientHasStoppedFreeing() {
    Credit credit = new Credit(budget, 100, AT_ONCE);
    AtomicInteger told = new AtomicInteger();
    credit.onReady(told::incrementAndGet);
    assertTrue(credit.admit(100));
    assertFalse(credit.isReady());
    credit.tick();
    assertEquals(1, told.get());
    assertTrue(credit.isReady());
    credit.tick();
    assertEquals(1, told.get());
    assertFalse(credit.admit(100), "its bodies go packed");
  }

  @Test
  void shouldNotCallASlowProducersClientAHoarder() {
    Credit credit = new Credit(budget, 100, AT_ONCE);
    assertTrue(credit.admit(60));
    // Nobody asked and was told to wait: the client merely works on its batch.
    credit.tick();
    credit.tick();
    credit.giveBack(60);
    assertTrue(credit.admit(60));
  }

  @Test
  void shouldTellAWaitingProducerThatTheClientIsGone() {
    Credit credit = new Credit(budget, 100, NEVER);
    AtomicInteger told = new AtomicInteger();
    credit.onReady(told::incrementAndGet);
    assertTrue(credit.admit(100));
    assertFalse(credit.isReady());
    credit.close();
    assertEquals(1, told.get());
    assertTrue(credit.isReady());
    credit.close();
    assertEquals(1, told.get());
  }
}
