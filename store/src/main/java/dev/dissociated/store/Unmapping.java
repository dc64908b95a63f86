package dev.dissociated.store;

import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.SharedSegment;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * Asks clients to unmap segments that nobody needs, and knows which of them have not done so: until
 * then the kernel has not got the memory back. Guarded by the store's lock.
 */
final class Unmapping {
  private record Asked(long charge, Set<Session> clients) {}

  private final GuestListener listener;
  private final Collection<Session> sessions;
  private final Map<Integer, Asked> asked = new HashMap<>();
  private long bytes;

  /**
   * @param sessions all there are, now and later
   */
  Unmapping(GuestListener listener, Collection<Session> sessions) {
    this.listener = listener;
    this.sessions = sessions;
  }

  /** Bytes given up that clients still have mapped. */
  long bytes() {
    return bytes;
  }

  /** Asks all clients that have it mapped. */
  void ask(SharedSegment segment) {
    Set<Session> clients = new HashSet<>();
    for (Session session : sessions) {
      if (session.hide(segment)) {
        clients.add(session);
      }
    }
    if (!clients.isEmpty()) {
      asked.put(segment.id(), new Asked(segment.charge(), clients));
      bytes += segment.charge();
    }
  }

  /**
   * Gives up segments that many objects have shared, of which none is left, and that only clients
   * keep.
   *
   * @param needed bytes after which it stops
   * @return whether there was one
   */
  boolean askForIdle(long needed) {
    long found = 0;
    for (SharedSegment idle : listener.idlePublic()) {
      long clients = sessions.stream().filter(session -> session.shows(idle)).count();
      // Streams would keep it for as long as they are connected.
      if (found < needed && clients == listener.shownTo(idle) && listener.retire(idle)) {
        ask(idle);
        found += idle.charge();
      }
    }
    return found > 0;
  }

  /** One client less has that segment mapped. */
  void done(int segment, Session session) {
    Asked left = asked.get(segment);
    if (left != null && left.clients().remove(session) && left.clients().isEmpty()) {
      asked.remove(segment);
      bytes -= left.charge();
    }
  }

  /** The client has gone, and all its mappings with it. */
  void done(Session session) {
    List.copyOf(asked.keySet()).forEach(segment -> done(segment, session));
  }
}
