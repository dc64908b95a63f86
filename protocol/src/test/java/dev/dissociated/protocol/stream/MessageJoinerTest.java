package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.Test;

class MessageJoinerTest {
  private static final IpcMessage BARE =
      IpcMessage.parse(IpcMessage.metadataOnly(IpcOption.DEFAULT, new byte[0]), 0);
  private static final IpcMessage SCHEMA =
      IpcMessage.parse(IpcMessage.schema(new Schema(List.of()), IpcOption.DEFAULT), 0);
  private static final IpcMessage BATCH = Flatbuffers.emptyBatch();

  private static void refused(Runnable action) {
    DissociatedException refused = assertThrows(DissociatedException.class, action::run);
    assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
  }

  /** Everything arrives in any order, across the wrap: it comes out once, in order, whole. */
  @Property(tries = 300)
  void shouldJoinAnyOrderOfArrival(
      @ForAll int first, @ForAll @IntRange(max = 200) int count, @ForAll long seed) {
    joinShuffled(first, count, seed);
    joinShuffled(-1 - count / 2, count, seed);
    joinShuffled(Integer.MAX_VALUE - count / 2, count, seed);
  }

  private static void joinShuffled(int first, int count, long seed) {
    Random random = new Random(seed);
    MessageJoiner<Integer> joiner = new MessageJoiner<>(first);
    List<Runnable> arrivals = new ArrayList<>();
    boolean[] bodies = new boolean[count];
    for (int i = 0; i < count; i++) {
      int offset = i;
      bodies[i] = random.nextBoolean();
      arrivals.add(() -> joiner.metadata(first + offset, bodies[offset] ? BATCH : BARE));
      if (bodies[i]) {
        arrivals.add(() -> joiner.body(first + offset, offset));
      }
    }
    arrivals.add(() -> joiner.end(first + count));
    Collections.shuffle(arrivals, random);
    int polled = 0;
    for (Runnable arrival : arrivals) {
      assertFalse(joiner.isComplete());
      arrival.run();
      boolean drain = random.nextInt(3) > 0;
      MessageJoiner.Slot<Integer> slot = drain ? joiner.poll() : null;
      while (slot != null) {
        assertEquals(bodies[polled] ? polled : null, slot.body);
        assertEquals(bodies[polled], slot.metadata.hasBody());
        polled++;
        slot = joiner.poll();
      }
    }
    while (joiner.poll() != null) {
      polled++;
    }
    assertEquals(count, polled);
    assertTrue(joiner.isComplete());
  }

  /** Whatever one message is left out, the stream is not complete. */
  @Property(tries = 200)
  void shouldNeverBeCompleteWithAGap(
      @ForAll int first,
      @ForAll @IntRange(min = 1, max = 50) int count,
      @ForAll @IntRange(max = 99) int left) {
    MessageJoiner<Integer> joiner = new MessageJoiner<>(first);
    int omitted = left % (2 * count);
    for (int i = 0; i < count; i++) {
      if (omitted != 2 * i) {
        joiner.metadata(first + i, BATCH);
      }
      if (omitted != 2 * i + 1) {
        joiner.body(first + i, i);
      }
    }
    joiner.end(first + count);
    int polled = 0;
    while (joiner.poll() != null) {
      polled++;
    }
    assertEquals(omitted / 2, polled);
    assertFalse(joiner.isComplete());
    assertTrue(joiner.missing().contains("next=" + Integer.toUnsignedString(first + polled)));
    assertEquals(omitted % 2 == 1, joiner.isAwaitingBody());
  }

  @Test
  void shouldRefuseWhatComesTwice() {
    MessageJoiner<Integer> joiner = new MessageJoiner<>(-1);
    joiner.metadata(-1, SCHEMA);
    refused(() -> joiner.metadata(-1, SCHEMA));
    refused(() -> joiner.body(-1, 1));
    joiner.poll();
    refused(() -> joiner.metadata(-1, SCHEMA));
    joiner.body(5, 1);
    refused(() -> joiner.body(5, 1));
    refused(() -> joiner.metadata(5, BARE));
    joiner.end(6);
    refused(() -> joiner.end(6));
  }

  @Test
  void shouldRefuseWhatLiesOutsideTheWindow() {
    MessageJoiner<Integer> joiner = new MessageJoiner<>(0);
    joiner.body(MessageJoiner.WINDOW - 1, 1);
    refused(() -> joiner.body(MessageJoiner.WINDOW, 1));
    refused(() -> joiner.metadata(Integer.MAX_VALUE, BARE));
    refused(() -> joiner.metadata(-1, BARE));
    joiner.metadata(0, BARE);
    assertTrue(joiner.poll() != null);
    joiner.body(MessageJoiner.WINDOW, 1);
  }

  @Test
  void shouldRefuseAnEndThatDoesNotFit() {
    MessageJoiner<Integer> early = new MessageJoiner<>(0);
    early.body(5, 1);
    refused(() -> early.end(5));
    refused(() -> early.end(0));
    early.end(6);
    refused(() -> early.metadata(6, BARE));
    MessageJoiner<Integer> past = new MessageJoiner<>(3);
    refused(() -> past.end(2));
    refused(() -> past.end(MessageJoiner.WINDOW + 4));
    past.end(MessageJoiner.WINDOW + 3);
  }

  @Test
  void shouldKnowWhoseBodyIsAwaited() {
    MessageJoiner<Integer> joiner = new MessageJoiner<>(0);
    assertNull(joiner.awaiting(0));
    assertNull(joiner.awaiting(-1));
    assertNull(joiner.awaiting(100_000));
    joiner.metadata(1, BATCH);
    assertEquals(BATCH, joiner.awaiting(1));
    joiner.body(1, 1);
    assertNull(joiner.awaiting(1));
    assertTrue(joiner.isNext(0));
    assertFalse(joiner.isNext(1));
  }

  @Test
  void shouldGiveBackTheBodiesThatWaitWhenItIsCleared() {
    MessageJoiner<Integer> joiner = new MessageJoiner<>(0);
    for (int i = 1; i < 100; i++) {
      joiner.body(i, i);
    }
    List<Integer> released = new ArrayList<>();
    joiner.clear(released::add);
    Collections.sort(released);
    assertEquals(99, released.size());
    joiner.clear(released::add);
    assertEquals(99, released.size());
  }

  @Test
  void shouldRefuseMetadataThatPilesUpBehindABodyThatNeverComes() {
    byte[] appMetadata = new byte[40_000];
    IpcMessage large = IpcMessage.parse(IpcMessage.metadataOnly(IpcOption.DEFAULT, appMetadata), 0);
    MessageJoiner<Integer> joiner = new MessageJoiner<>(0);
    joiner.metadata(0, BATCH);
    int sequence = 1;
    long most = MessageJoiner.MOST_WAITING_METADATA - BATCH.flatbufferLength();
    for (; (long) sequence * large.flatbufferLength() <= most; sequence++) {
      joiner.metadata(sequence, large);
    }
    int tooMany = sequence;
    assertTrue(tooMany < MessageJoiner.WINDOW);
    refused(() -> joiner.metadata(tooMany, large));
    // With the body there is room again, as much as was given out.
    joiner.body(0, 0);
    for (int i = 0; i < tooMany; i++) {
      assertTrue(joiner.poll() != null);
    }
    joiner.metadata(tooMany, large);
    assertTrue(joiner.poll() != null);
    assertNull(joiner.poll());
  }

  @Test
  void shouldTakeTheMessageWhoseTurnItIsHoweverMuchWaits() {
    IpcMessage large =
        IpcMessage.parse(IpcMessage.metadataOnly(IpcOption.DEFAULT, new byte[40_000]), 0);
    MessageJoiner<Integer> joiner = new MessageJoiner<>(0);
    int count = (int) (MessageJoiner.MOST_WAITING_METADATA / large.flatbufferLength());
    for (int i = 1; i <= count; i++) {
      joiner.metadata(i, large);
    }
    refused(() -> joiner.metadata(count + 1, large));
    joiner.metadata(0, large);
    for (int i = 0; i <= count; i++) {
      assertTrue(joiner.poll() != null);
    }
    assertNull(joiner.poll());
  }
}
