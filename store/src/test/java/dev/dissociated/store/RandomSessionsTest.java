package dev.dissociated.store;

import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Combinators;
import net.jqwik.api.EdgeCasesMode;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.Tag;

/**
 * Whatever several clients do, in any order: the store does what a small model of it does, and
 * nothing is left when they have gone. A failure is printed with its seed and the shortest session
 * that shows it.
 */
class RandomSessionsTest {
  /** Something that a client does; what the numbers mean is up to the action. */
  record Step(int client, Action action, String name, int number) {}

  enum Action {
    PUT(10),
    GET(8),
    WAIT(3),
    READ(3),
    RELEASE(6),
    DELETE(5),
    PIN(2),
    EXPIRE(2),
    SUBSCRIBE(1),
    CLAIM(4),
    TAKE(4),
    LEAVE(1),
    CHECK(3);

    final int frequency;

    Action(int frequency) {
      this.frequency = frequency;
    }
  }

  @Provide
  Arbitrary<List<Step>> sessions() {
    List<Action> often =
        Arrays.stream(Action.values())
            .flatMap(action -> Collections.nCopies(action.frequency, action).stream())
            .toList();
    Arbitrary<Step> steps =
        Combinators.combine(
                Arbitraries.integers().between(0, SessionModel.CLIENTS - 1),
                Arbitraries.of(often),
                Arbitraries.of("a", "a/1", "a/2", "b", "b/ä", "c"),
                Arbitraries.integers().between(0, 1 << 16))
            .as(Step::new);
    return steps.list().ofMinSize(1).ofMaxSize(120);
  }

  @Property(tries = 60, edgeCases = EdgeCasesMode.NONE)
  void shouldDoWhatTheModelDoes(@ForAll("sessions") List<Step> session) {
    run(session);
  }

  @Property(tries = 3000, edgeCases = EdgeCasesMode.NONE)
  @Tag("long")
  void shouldDoWhatTheModelDoesForLong(@ForAll("sessions") List<Step> session) {
    run(session);
  }

  private static void run(List<Step> session) {
    try (StoreFixture fixture = new StoreFixture();
        SessionModel model = new SessionModel(fixture)) {
      session.forEach(model::play);
      model.finish();
    }
  }
}
