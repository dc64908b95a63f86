package dev.dissociated.protocol.stream;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assertions.fail;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.stream.DissociatedReader.Validation;
import dev.dissociated.protocol.stream.MessageBody.Lifetime;
import dev.dissociated.protocol.testing.LeakGuard;
import dev.dissociated.protocol.testing.RecordingHandler.Event;
import dev.dissociated.protocol.testing.RecordingHandler.Tagged;
import dev.dissociated.protocol.testing.RecordingHandler.Untagged;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A reader against servers whose bytes were changed at random. It must fail with its own exception
 * or give a batch, never touch memory beyond what it was given, and never write to it.
 */
@ExtendWith(LeakGuard.class)
class FuzzedServerTest {
  /** Per test; a system property asks for more. */
  private static final int TRIES = Integer.getInteger("dissociated.fuzz.tries", 500);

  private RecordedStream stream;

  @BeforeEach
  void fill() {
    stream = new RecordedStream();
  }

  @AfterEach
  void release() {
    stream.close();
  }

  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldReadWhatIsNotChanged(Validation validation) {
    List<Event> packed = stream.record(Lifetime.TRANSIENT);
    assertEquals(null, stream.read(packed, validation));
    List<Event> lent = stream.intoBlock(stream.record(Lifetime.RESIDENT));
    assertEquals(null, stream.read(lent, validation));
    assertArrayEquals(stream.original, stream.bytesOfBlock());
  }

  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldSurviveAnyChangeToPackedStreams(Validation validation) {
    fuzz(stream.record(Lifetime.TRANSIENT), validation, true);
  }

  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldSurviveAnyChangeToLentStreamsAndNotWriteToThem(Validation validation) {
    fuzz(stream.intoBlock(stream.record(Lifetime.RESIDENT)), validation, true);
  }

  /** Offsets, views, type ids and runs that point anywhere. */
  @ParameterizedTest
  @EnumSource(Validation.class)
  void shouldSurviveHostileBytesInLentMemory(Validation validation) {
    List<Event> events = stream.intoBlock(stream.record(Lifetime.RESIDENT));
    long seed = System.nanoTime();
    Random random = new Random(seed);
    for (int i = 0; i < TRIES; i++) {
      stream.block.setBytes(0, stream.original);
      for (int flip = 0; flip < 5; flip++) {
        long at = random.nextInt(64 << 10);
        stream.block.setByte(at, random.nextBoolean() ? -1 : random.nextInt());
      }
      byte[] hostile = stream.bytesOfBlock();
      attempt(events, validation, seed, i);
      assertArrayEquals(hostile, stream.bytesOfBlock(), "written to, seed=" + seed + " try=" + i);
    }
  }

  private void fuzz(List<Event> events, Validation validation, boolean bodies) {
    long seed = System.nanoTime();
    Random random = new Random(seed);
    int refused = 0;
    for (int i = 0; i < TRIES; i++) {
      List<Event> changed = mutated(events, random, bodies);
      refused += attempt(changed, validation, seed, i) == null ? 0 : 1;
      if (stream.block != null) {
        assertArrayEquals(
            stream.original, stream.bytesOfBlock(), "written to, seed=" + seed + " try=" + i);
      }
    }
    assertTrue(refused > 0, "nothing was refused, seed=" + seed);
  }

  private DissociatedException attempt(
      List<Event> events, Validation validation, long seed, int number) {
    try {
      return stream.read(events, validation);
    } catch (RuntimeException | Error e) {
      return fail(validation + " seed=" + seed + " try=" + number, e);
    }
  }

  private static List<Event> mutated(List<Event> events, Random random, boolean bodies) {
    List<Event> changed = new ArrayList<>(events);
    int flips = 1 + random.nextInt(3);
    for (int flip = 0; flip < flips; flip++) {
      int index = random.nextInt(changed.size());
      Event event = changed.get(index);
      if (event instanceof Untagged untagged) {
        changed.set(index, new Untagged(flipped(untagged.bytes(), random)));
      } else if (bodies && event instanceof Tagged tagged) {
        changed.set(index, new Tagged(tagged.tag(), flipped(tagged.bytes(), random), false));
      }
    }
    return changed;
  }

  private static byte[] flipped(byte[] bytes, Random random) {
    byte[] changed = bytes.clone();
    if (changed.length > 0) {
      int at = random.nextInt(changed.length);
      byte value =
          switch (random.nextInt(4)) {
            case 0 -> (byte) (changed[at] ^ (1 << random.nextInt(8)));
            case 1 -> (byte) -1;
            case 2 -> (byte) 0x7F;
            default -> (byte) random.nextInt();
          };
      changed[at] = value;
    }
    return changed;
  }
}
