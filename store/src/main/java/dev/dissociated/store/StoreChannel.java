package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.MessageHandler;
import dev.dissociated.shm.GuestClientEnd;
import dev.dissociated.shm.OwnSegment;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.arrow.memory.ArrowBuf;

/**
 * A client's connection to a store: matches answers with requests, and keeps count of what is in
 * use, so that segments are unmapped when the daemon asks and not before. Of the threads that wait
 * for an answer, one reads for all; while none does, a thread of the process looks in twice a
 * second.
 *
 * <p>Thread-safe. The connection stays until {@link #close} was called and the last lease ended.
 */
final class StoreChannel {
  private static final long SLICE_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

  /** How long ends of leases wait for company. */
  private static final long RELEASE_NANOS = TimeUnit.MILLISECONDS.toNanos(1);

  /** Requests under way at a time where many are sent at once. */
  private static final int WINDOW = 256;

  private static final int MOST_SEGMENT_ID = (1 << 24) - 1;
  private static final ScheduledExecutorService HOUSEKEEPING =
      Executors.newSingleThreadScheduledExecutor(
          task -> {
            Thread thread = new Thread(task, "store-client");
            thread.setDaemon(true);
            return thread;
          });

  /** An answer that somebody waits for. */
  private static final class Call {
    StoreMessage answer;
  }

  private final GuestClientEnd connection;
  private final Future<?> housekeeping;

  // Guarded by this.
  private final Map<Long, Call> calls = new HashMap<>();
  private final Map<Long, Consumer<StoreMessage>> events = new HashMap<>();
  private final Map<Integer, Integer> inUse = new HashMap<>();
  private long lastRequest;
  private int lastSegment;
  private int leases;
  private final EndedLeases ended = new EndedLeases();
  private final ClientArenas arenas = new ClientArenas();
  private boolean reading;
  private boolean closing;
  private boolean gone;
  private DissociatedException failure;

  /** Segments are handed over and named in the same order. */
  private final Object handing = new Object();

  private final MessageHandler handler = new Answers();

  /** Takes the connection over. */
  StoreChannel(GuestClientEnd connection) {
    this.connection = connection;
    connection.awaitAnswers();
    housekeeping =
        HOUSEKEEPING.scheduleWithFixedDelay(
            this::lookIn, SLICE_NANOS, SLICE_NANOS, TimeUnit.NANOSECONDS);
  }

  // ---- asking

  /**
   * Sends a request and waits for its answer.
   *
   * @throws DissociatedException what the store answers, or why the connection has ended
   */
  StoreMessage call(StoreMessage request) {
    return call(request, null);
  }

  /**
   * The same for a request that events follow.
   *
   * @param listener gets each event, on whichever thread reads; null for none
   */
  StoreMessage call(StoreMessage request, Consumer<StoreMessage> listener) {
    Call call = new Call();
    long number = enter(call);
    try {
      listen(number, listener);
      send(request.withRequest(number));
      return answered(await(call));
    } catch (RuntimeException e) {
      abandon(number, call);
      throw e;
    }
  }

  /** The same for a put that names segments of this client's by their place in the list. */
  StoreMessage put(StoreMessage put, List<OwnSegment> segments) {
    if (segments.isEmpty()) {
      return call(put);
    }
    Call call = new Call();
    long number = enter(call);
    try {
      synchronized (handing) {
        int[] ids = new int[segments.size()];
        for (int i = 0; i < ids.length; i++) {
          lastSegment = lastSegment == MOST_SEGMENT_ID ? 1 : lastSegment + 1;
          ids[i] = lastSegment;
          connection.hand(ids[i], segments.get(i));
        }
        send(named(put, ids).withRequest(number));
      }
      return answered(await(call));
    } catch (RuntimeException e) {
      abandon(number, call);
      throw e;
    }
  }

  /** Replaces places in the list, counted from 0, by the ids of the segments. */
  private static StoreMessage named(StoreMessage put, int[] ids) {
    List<BufferRef> refs =
        put.buffers().stream()
            .map(
                ref ->
                    ref.liesIn(BufferRef.Kind.SHARED)
                        ? BufferRef.shared(ids[ref.segment()], ref.offset(), ref.length())
                        : ref)
            .toList();
    return StoreMessage.put(put.type(), put.flags(), put.name(), put.a(), refs, put.inline());
  }

  private synchronized long enter(Call call) {
    requireOpen();
    calls.put(++lastRequest, call);
    return lastRequest;
  }

  /** An answer that comes later is dealt with by whoever reads it. */
  private void abandon(long number, Call call) {
    StoreMessage answer;
    synchronized (this) {
      calls.remove(number);
      answer = call.answer;
    }
    if (answer != null && answer.op() == Op.OBJECT) {
      release(answer.a(), answer.buffers());
    } else if (answer != null && answer.op() == Op.ALLOCATED) {
      filled(ArenaMessage.id(answer), false);
    }
  }

  private synchronized void listen(long number, Consumer<StoreMessage> listener) {
    if (listener != null) {
      events.put(number, listener);
    }
  }

  private synchronized Consumer<StoreMessage> listenerOf(long number) {
    return events.getOrDefault(number, message -> {});
  }

  private void requireOpen() {
    if (failure != null) {
      throw new DissociatedException(failure.code(), failure.getMessage(), failure);
    }
    if (closing) {
      throw new DissociatedException(Code.CANCELLED, "store not asked: this client is closed");
    }
  }

  private void send(StoreMessage message) {
    sendLater(message);
    connection.flush();
  }

  private void sendLater(StoreMessage message) {
    sendReleases();
    connection.sendTagged(StoreMessage.TAG, message.encode());
  }

  /** Ends of leases go with the next request: alone, each would wake the daemon for nothing. */
  private boolean sendReleases() {
    synchronized (ended) { // so that no request overtakes them
      long[] leases = ended.take();
      if (leases.length > 0) {
        connection.sendTagged(StoreMessage.TAG, StoreMessage.release(leases).encode());
      }
      return leases.length > 0;
    }
  }

  /** Where no request has come, after a moment. */
  private void flushReleases() {
    synchronized (this) {
      if (failure != null || gone) {
        return;
      }
    }
    try {
      if (sendReleases()) {
        connection.flush();
      }
    } catch (DissociatedException e) {
      // The connection has ended, and the leases with it.
    }
  }

  /**
   * Sends requests without waiting for the answer to each, and waits for all of them.
   *
   * @throws DissociatedException the first failure, once all that were sent have been answered
   */
  void callAll(Iterator<StoreMessage> requests) {
    Deque<Map.Entry<Long, Call>> waiting = new ArrayDeque<>();
    DissociatedException first = null;
    try {
      while (requests.hasNext() || !waiting.isEmpty()) {
        while (requests.hasNext() && waiting.size() < WINDOW) {
          StoreMessage request = requests.next();
          Call call = new Call();
          long number = enter(call);
          waiting.add(Map.entry(number, call));
          sendLater(request.withRequest(number));
        }
        connection.flush();
        // The daemon goes on with the second half while the answers to the first are read.
        for (int left = (waiting.size() + 1) / 2; left > 0; left--) {
          StoreMessage answer = await(waiting.peek().getValue());
          waiting.remove();
          first = first == null && answer.op() == Op.FAILED ? answer.failure() : first;
        }
      }
    } finally {
      waiting.forEach(call -> abandon(call.getKey(), call.getValue()));
    }
    if (first != null) {
      throw first;
    }
  }

  private StoreMessage await(Call call) {
    while (true) {
      synchronized (this) {
        while (call.answer == null && failure == null && reading) {
          waitForReader();
        }
        if (call.answer != null) {
          return call.answer;
        }
        requireOpen();
        reading = true;
      }
      read(SLICE_NANOS);
    }
  }

  private static StoreMessage answered(StoreMessage answer) {
    if (answer.op() == Op.FAILED) {
      throw answer.failure();
    }
    return answer;
  }

  private void waitForReader() {
    try {
      wait();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new DissociatedException(Code.CANCELLED, "store not asked: interrupted", e);
    }
  }

  /** Reads for everybody; the caller has set {@code reading}. */
  private void read(long nanos) {
    DissociatedException why = null;
    try {
      if (nanos == 0 || !connection.pollAwake(handler)) {
        connection.poll(handler, nanos);
      }
      if (Thread.currentThread().isInterrupted()) {
        throw new DissociatedException(Code.CANCELLED, "store not asked: interrupted");
      }
    } catch (DissociatedException e) {
      if (e.code() == Code.CANCELLED && Thread.currentThread().isInterrupted()) {
        throw e;
      }
      why = e;
    } finally {
      synchronized (this) {
        reading = false;
        if (why != null && failure == null) {
          failure = why;
        }
        notifyAll();
      }
    }
  }

  private void lookIn() {
    synchronized (this) {
      if (reading || failure != null || gone) {
        return;
      }
      reading = true;
    }
    read(0);
  }

  // ---- leases

  /** The device memory that this client was told of. */
  ClientArenas arenas() {
    return arenas;
  }

  /**
   * Ends the filling of an allocation, which is not used here any more.
   *
   * @param done whether it is to be put; otherwise it is given back
   */
  void filled(int arena, boolean done) {
    arenas.count(arena, -1);
    if (!done) {
      drop(arena);
    }
    synchronized (this) {
      leases--;
    }
    closeIfUnused();
  }

  /** Closes an arena that is not in use, and says so. */
  private void drop(int arena) {
    if (arenas.drop(arena)) {
      try {
        send(StoreMessage.plain(Op.DROPPED, 0, arena, 0));
      } catch (DissociatedException e) {
        // The connection has ended, and the allocation with it.
      }
    }
  }

  /** Where a buffer of an object on lease lies in this process; 0 when it is on a device. */
  long resolve(BufferRef ref) {
    return !ref.liesIn(BufferRef.Kind.SHARED)
        ? 0
        : connection.remoteMemory().resolve(ref.address(), ref.length());
  }

  /** Ends a lease; nothing may use its buffers any more. The daemon is told in a moment. */
  void release(long lease, List<BufferRef> refs) {
    synchronized (this) {
      count(refs, -1);
    }
    EndedLeases.Added added = ended.add(lease);
    synchronized (this) {
      leases--; // now that whoever closes the connection tells the daemon of it
    }
    switch (added) {
      case FIRST -> HOUSEKEEPING.schedule(this::flushReleases, RELEASE_NANOS, TimeUnit.NANOSECONDS);
      case MORE -> {
        // goes with the first
      }
      case MANY -> flushReleases();
    }
    closeIfUnused();
  }

  private void count(List<BufferRef> refs, int change) {
    for (BufferRef ref : refs) {
      if (ref.liesIn(BufferRef.Kind.DEVICE)) {
        arenas.count(ref.arena(), change);
      } else if (ref.length() > 0) {
        inUse.merge(ref.segment(), change, (a, b) -> a + b == 0 ? null : Integer.valueOf(a + b));
      }
    }
  }

  /** No more requests; the connection ends with the last lease. Idempotent. */
  void close() {
    synchronized (this) {
      closing = true;
    }
    closeIfUnused();
  }

  private void closeIfUnused() {
    synchronized (this) {
      if (!closing || leases > 0 || gone) {
        return;
      }
      gone = true;
    }
    housekeeping.cancel(false);
    dropAll();
    connection.close();
    connection.remoteMemory().close();
  }

  /** The daemon need not wait for the end of this process. */
  private void dropAll() {
    List<Integer> dropped = arenas.close();
    if (dropped.isEmpty()) {
      return;
    }
    try {
      sendReleases();
      for (int arena : dropped) {
        sendLater(StoreMessage.plain(Op.DROPPED, 0, arena, 0));
      }
      connection.flush();
    } catch (DissociatedException e) {
      // The connection has ended already.
    }
  }

  /** What the store says; called by whoever reads. */
  private final class Answers implements MessageHandler {
    @Override
    public void message(ByteBuffer message) {
      throw DissociatedException.violation("message refused: the store's messages have a tag");
    }

    @Override
    public ArrowBuf allocate(long tag, long length) {
      if (tag != StoreMessage.TAG) {
        throw DissociatedException.violation("message refused: not of the store's, tag=" + tag);
      }
      return null;
    }

    @Override
    public void tagged(long tag, ArrowBuf payload) {
      payload.close();
    }

    @Override
    public void tagged(long tag, ByteBuffer payload) {
      // The bytes are the transport's, and gone after this call.
      ByteBuffer copy = ByteBuffer.allocate(payload.remaining()).put(payload.duplicate()).flip();
      StoreMessage message = StoreMessage.parse(copy);
      switch (message.op()) {
        case HIDE -> hide(message.a());
        case EVENT -> listenerOf(message.request()).accept(message);
        case ARENA -> arenas.told(ArenaMessage.id(message), ArenaMessage.memory(message));
        case DROP -> drop(ArenaMessage.id(message));
        case ALLOCATED -> {
          arenas.told(ArenaMessage.id(message), ArenaMessage.memory(message));
          answer(message);
        }
        case OBJECT, DONE, OPENED, ROWS, USED, FAILED, CLAIMED -> answer(message);
        default ->
            throw DissociatedException.violation(
                "store message refused: not a store's to send, op=" + message.op());
      }
    }

    private void answer(StoreMessage message) {
      Call call;
      synchronized (StoreChannel.this) {
        call = calls.remove(message.request());
        if (message.op() == Op.OBJECT) {
          count(message.buffers(), 1);
          leases++;
        }
        if (call != null && message.op() == Op.ALLOCATED) {
          arenas.count(ArenaMessage.id(message), 1);
          leases++; // whoever fills it ends that
        }
        if (call != null) {
          call.answer = message;
          StoreChannel.this.notifyAll();
        }
      }
      if (call == null && message.op() == Op.OBJECT) {
        release(message.a(), message.buffers()); // nobody waits for it any more
      } else if (call == null && message.op() == Op.ALLOCATED) {
        drop(ArenaMessage.id(message));
      }
    }

    private void hide(long segment) {
      synchronized (StoreChannel.this) {
        if (segment < 1 || segment > MOST_SEGMENT_ID || inUse.containsKey((int) segment)) {
          throw DissociatedException.violation(
              "store message refused: a segment is to be hidden that is in use, segment="
                  + segment);
        }
        connection.forget((int) segment);
      }
      send(StoreMessage.plain(Op.HIDDEN, 0, segment, 0));
    }

    @Override
    public void closed(DissociatedException cause) {
      // told by poll()
    }
  }
}
