package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** Gets that wait for their names. Guarded by the store's lock. */
final class Waiters {
  private static final int MOST_WAITING = 1024;
  private static final long FOR_EVER_MILLIS = TimeUnit.DAYS.toMillis(365);

  private record Waiter(
      Session session, String name, long request, boolean forEver, long deadline) {}

  private final Map<String, List<Waiter>> byName = new HashMap<>();
  private final Map<Session, List<Waiter>> bySession = new HashMap<>();

  /**
   * Has a get wait.
   *
   * @param millis how long; negative for ever
   * @throws DissociatedException RESOURCE_EXHAUSTED when too many of that session wait
   */
  void await(Session session, String name, long request, long millis) {
    List<Waiter> own = bySession.computeIfAbsent(session, key -> new ArrayList<>());
    if (own.size() == MOST_WAITING) {
      throw new DissociatedException(
          Code.RESOURCE_EXHAUSTED, "request refused: too many waiting gets, limit=" + MOST_WAITING);
    }
    boolean forEver = millis < 0 || millis > FOR_EVER_MILLIS;
    long deadline = System.nanoTime() + (forEver ? 0 : TimeUnit.MILLISECONDS.toNanos(millis));
    Waiter waiter = new Waiter(session, name, request, forEver, deadline);
    own.add(waiter);
    byName.computeIfAbsent(name, key -> new ArrayList<>()).add(waiter);
  }

  private static <K> void remove(Map<K, List<Waiter>> all, K key, Waiter waiter) {
    all.computeIfPresent(
        key,
        (same, waiting) -> {
          waiting.remove(waiter);
          return waiting.isEmpty() ? null : waiting;
        });
  }

  /** The name that gets waited for has come. */
  void listed(StoredObject object) {
    List<Waiter> waiting = byName.remove(object.name);
    if (waiting == null) {
      return;
    }
    for (Waiter waiter : waiting) {
      remove(bySession, waiter.session(), waiter);
      try {
        waiter.session().give(object, waiter.request());
      } catch (DissociatedException e) {
        waiter.session().say(StoreMessage.failed(waiter.request(), e));
      }
    }
  }

  /** Tells a session of its gets whose time is over. */
  void expire(Session session, long now) {
    for (Waiter waiter : List.copyOf(bySession.getOrDefault(session, List.of()))) {
      if (!waiter.forEver() && now - waiter.deadline() >= 0) {
        remove(bySession, session, waiter);
        remove(byName, waiter.name(), waiter);
        session.say(StoreMessage.failed(waiter.request(), Catalogue.missing(waiter.name())));
      }
    }
  }

  /** The session has ended, and all that waits for it. */
  void leave(Session session) {
    List<Waiter> own = bySession.remove(session);
    if (own != null) {
      own.forEach(waiter -> remove(byName, waiter.name(), waiter));
    }
  }
}
