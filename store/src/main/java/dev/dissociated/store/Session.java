package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.GuestEnd;
import dev.dissociated.shm.GuestHandler;
import dev.dissociated.shm.HandedSegment;
import dev.dissociated.shm.SharedSegment;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;

/**
 * One client of the store: what it holds, what it waits for, and what is to be said to it. Its
 * state is guarded by the store's lock; what waits to be sent goes out on the listener's thread,
 * without the lock.
 */
final class Session implements GuestHandler {
  private static final int MOST_SUBSCRIPTIONS = 1024;
  private static final int MOST_HANDED = 64;
  private static final int MOST_LEASES = 1 << 18;
  private static final long LONGEST_CLAIM_MILLIS = TimeUnit.DAYS.toMillis(365);

  /** Something to be said: a message, or an object whose segments may have to be shown first. */
  private record Outgoing(StoreMessage message, StoredObject object, long lease) {}

  /** A get whose object is on its way back into memory; it has a lease that has no number yet. */
  private final class Returning implements StoredObject.Reader {
    private final StoredObject object;
    private final long request;

    Returning(StoredObject object, long request) {
      this.object = object;
      this.request = request;
    }

    @Override
    public void ready() {
      returning.remove(this);
      hand(object, request);
    }

    @Override
    public void failed(DissociatedException why) {
      returning.remove(this);
      store.catalogue().release(object);
      say(StoreMessage.failed(request, why));
    }

    void cancel() {
      object.forget(this);
      store.catalogue().release(object);
    }
  }

  final long number;
  private final Store store;
  private final GuestEnd end;

  // Guarded by the store's lock.
  private final Map<Long, StoredObject> leases = new HashMap<>();
  private final Map<Integer, HandedSegment> handed = new HashMap<>();
  private final Map<Integer, SharedSegment> hiding = new HashMap<>();
  private final Map<Long, String> subscriptions = new HashMap<>();
  private final Deque<Outgoing> outgoing = new ArrayDeque<>();
  private final Set<Returning> returning = new HashSet<>();
  private final Account account = new Account();
  private final SessionArenas arenas;
  private long lastLease;
  private long version; // 0 before OPEN
  private boolean over;
  private boolean remote;

  Session(Store store, long number, GuestEnd end) {
    this.store = store;
    this.number = number;
    this.end = end;
    this.arenas = new SessionArenas(store.devices(), this);
  }

  // ---- on the listener's thread

  @Override
  public ArrowBuf allocate(long tag, long length) {
    if (tag != StoreMessage.TAG || length < 0 || length > StoreMessage.MOST_BYTES) {
      throw DissociatedException.violation(
          "store message refused: not of the store's, or too long, tag="
              + Long.toUnsignedString(tag)
              + " length="
              + Long.toUnsignedString(length));
    }
    return null;
  }

  @Override
  public void message(ByteBuffer message) {
    throw DissociatedException.violation("message refused: the store's messages have a tag");
  }

  @Override
  public void tagged(long tag, ArrowBuf payload) {
    payload.close();
    throw new IllegalStateException("no memory was given for it");
  }

  @Override
  public void tagged(long tag, ByteBuffer payload) {
    synchronized (store.lock) {
      handle(payload);
    }
    store.deliver();
  }

  private void handle(ByteBuffer payload) {
    long request = StoreMessage.requestOf(payload);
    try {
      StoreMessage message = StoreMessage.parse(payload);
      if (version > 0 == (message.op() == Op.OPEN)) {
        throw DissociatedException.violation(
            "store message refused: the first one, and no other, is OPEN, op=" + message.op());
      }
      handle(message);
    } catch (DissociatedException e) {
      if (e.code() == Code.PROTOCOL_VIOLATION) {
        throw e;
      }
      say(StoreMessage.failed(request, e));
    }
  }

  private void handle(StoreMessage message) {
    long request = message.request();
    switch (message.op()) {
      case OPEN -> {
        version = message.a();
        say(StoreMessage.plain(Op.OPENED, request, message.a(), number));
      }
      case PUT -> store.put(this, request, draft(message));
      case GET -> get(message);
      case RELEASE -> release(message.leases());
      case LIST -> say(Reports.list(store.catalogue(), message, knowsDevices()));
      case STAT -> say(Reports.stat(store.catalogue(), message, knowsDevices()));
      case DELETE -> {
        store.requireWritable();
        store.catalogue().delete(message.name(), user());
        say(done(request));
        store.memoryReturned();
      }
      case CHANGE -> {
        store.requireWritable();
        store.catalogue().change(message.name(), user(), message);
        say(done(request));
      }
      case SUBSCRIBE -> {
        if (subscriptions.size() == MOST_SUBSCRIPTIONS) {
          throw tooMany("subscriptions", MOST_SUBSCRIPTIONS);
        }
        subscriptions.put(request, message.name());
        say(done(request));
      }
      case USAGE -> say(Reports.usage(store.usageLocked(), message, knowsDevices()));
      case HIDDEN -> hidden(message.a());
      case CLAIM -> claim(message);
      case TAKE -> store.claims().take(new Claims.Token(message.a(), message.b()), this, request);
      case ALLOCATE -> {
        store.requireWritable();
        arenas.allocate(message);
      }
      case DROPPED -> arenas.dropped(ArenaMessage.id(message));
      case DONE, OPENED, OBJECT, ROWS, EVENT, USED, HIDE, FAILED, CLAIMED, ALLOCATED, ARENA, DROP ->
          throw DissociatedException.violation(
              "store message refused: not a client's to send, op=" + message.op());
    }
  }

  static StoreMessage done(long request) {
    return StoreMessage.plain(Op.DONE, request, 0, 0);
  }

  private static DissociatedException tooMany(String what, int limit) {
    return new DissociatedException(
        Code.RESOURCE_EXHAUSTED, "request refused: too many " + what + ", limit=" + limit);
  }

  private Draft draft(StoreMessage put) {
    Draft draft = new Draft(put, handed, arenas);
    try {
      store.requireWritable();
      store.requireFree(draft.name(), draft.replaces(), user());
      if (draft.mustFill()) {
        draft.from(end.peerMemory());
      }
      return draft;
    } catch (DissociatedException e) {
      draft.close();
      throw e;
    }
  }

  private void get(StoreMessage message) {
    StoredObject object = store.catalogue().find(message.name());
    if (object != null) {
      give(object, message.request());
      return;
    }
    if (message.a() == 0) {
      throw Catalogue.missing(message.name());
    }
    store.waiters().await(this, message.name(), message.request(), message.a());
  }

  private void claim(StoreMessage message) {
    StoredObject object = leases.get(message.a());
    if (object == null) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "object not claimed: no such lease, lease=" + message.a());
    }
    long patience = Math.min(message.b() < 0 ? Long.MAX_VALUE : message.b(), LONGEST_CLAIM_MILLIS);
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patience);
    Claims.Token token = store.claims().add(this, object, deadline);
    say(StoreMessage.plain(Op.CLAIMED, message.request(), token.high(), token.low()));
  }

  private void hidden(long segment) {
    SharedSegment hidden = segment > Integer.MAX_VALUE ? null : hiding.remove((int) segment);
    if (hidden == null) {
      throw DissociatedException.violation(
          "store message refused: nobody asked to hide that segment, segment=" + segment);
    }
    end.conceal(hidden);
    store.hidden(hidden.id(), this);
    store.memoryReturned();
  }

  @Override
  public void handed(HandedSegment segment) {
    synchronized (store.lock) {
      if (version == 0 || handed.size() == MOST_HANDED || handed.containsKey(segment.id())) {
        segment.close();
        throw DissociatedException.violation(
            "segment refused: before OPEN, handed over twice, or too many, id="
                + segment.id()
                + " waiting="
                + handed.size());
      }
      handed.put(segment.id(), segment);
    }
  }

  @Override
  public void tick(long nanoTime) {
    synchronized (store.lock) {
      store.waiters().expire(this, nanoTime);
      store.retryParked(nanoTime);
    }
    deliver();
  }

  @Override
  public void closed(DissociatedException cause) {
    synchronized (store.lock) {
      over = true;
      outgoing.clear();
      handed.values().forEach(HandedSegment::close);
      handed.clear();
      returning.forEach(Returning::cancel);
      returning.clear();
      store.leave(this);
      leases.values().forEach(store.catalogue()::release);
      leases.clear();
      arenas.close(end.peer().process());
      store.memoryReturned();
    }
    store.deliver();
  }

  /** Sends what waits to be sent; without the store's lock. */
  void deliver() {
    List<Outgoing> now;
    synchronized (store.lock) {
      if (outgoing.isEmpty()) {
        return;
      }
      now = List.copyOf(outgoing);
      outgoing.clear();
    }
    try {
      for (Outgoing next : now) {
        StoreMessage message = next.object() == null ? next.message() : show(next);
        end.sendTagged(StoreMessage.TAG, message.encode());
      }
      end.flushSoon();
    } catch (DissociatedException e) {
      end.fail(e); // it does not read, or has gone
    }
  }

  /** The segments of an object, all shown, and where its parts are in them. */
  private StoreMessage show(Outgoing next) {
    ObjectMemory memory = next.object().memory(); // which stays: it is leased
    List<BufferRef> refs = new ArrayList<>(memory.parts().size());
    for (ObjectMemory.Part part : memory.parts()) {
      long address = 0;
      if (part.arena() != null) {
        refs.add(BufferRef.onDevice(part.arena().id, part.offset(), part.length()));
        continue;
      }
      if (part.length() > 0 && part.segment() != null) {
        address = end.show(part.segment()) + part.offset();
      } else if (part.length() > 0) {
        address = end.export(memory.blockAddress(part), part.length());
      }
      refs.add(new BufferRef(BufferRef.Kind.SHARED, address, part.length()));
    }
    return StoreMessage.object(next.object().type, next.message().request(), next.lease(), refs);
  }

  // ---- under the store's lock, on any thread

  int user() {
    return remote ? RemoteCaller.USER : end.user();
  }

  /** Whoever is behind it does not come by the socket. */
  void actAsRemote() {
    remote = true;
  }

  /** Whether it may be told of memory on devices. */
  boolean knowsDevices() {
    return version >= StoreMessage.VERSION;
  }

  /** The device memory that it was told of. */
  SessionArenas arenas() {
    return arenas;
  }

  /** Whether it has a lease on what lies in that arena. */
  boolean holds(Arena arena) {
    return leases.values().stream()
        .anyMatch(object -> object.device != null && object.memory().arenas().contains(arena));
  }

  /** Whether it has a lease on something that lies on that device. */
  boolean holds(UUID device) {
    return leases.values().stream().anyMatch(object -> device.equals(object.device));
  }

  boolean isOver() {
    return over;
  }

  /** What it has put and is still there. */
  Account account() {
    return account;
  }

  void say(StoreMessage message) {
    queue(new Outgoing(message, null, 0));
  }

  private void queue(Outgoing next) {
    if (!over) {
      outgoing.add(next);
      store.hasToSay(this);
    }
  }

  /** Answers a get with a lease. */
  void give(StoredObject object, long request) {
    arenas.requireReadable(object);
    if (leases.size() >= MOST_LEASES - returning.size()) {
      throw tooMany("leases", MOST_LEASES);
    }
    store.catalogue().lease(object);
    if (object.isInMemory()) {
      hand(object, request);
    } else {
      Returning get = new Returning(object, request);
      returning.add(get);
      store.bringBack(object, get);
    }
  }

  private void hand(StoredObject object, long request) {
    arenas.tell(object);
    leases.put(++lastLease, object);
    queue(new Outgoing(StoreMessage.plain(Op.DONE, request, 0, 0), object, lastLease));
  }

  private void release(long[] ended) {
    for (long lease : ended) {
      StoredObject object = leases.remove(lease);
      if (object != null) {
        store.catalogue().release(object);
      }
    }
    store.memoryReturned();
  }

  void tell(StoredObject object, boolean gone) {
    subscriptions.forEach(
        (request, prefix) -> {
          if (object.name.startsWith(prefix)) {
            say(StoreMessage.event(object.type, gone, object.name, request));
          }
        });
  }

  /** Whether the client may have a segment mapped. */
  boolean shows(SharedSegment segment) {
    return !over && end.shows(segment);
  }

  /** Asks the client to unmap a segment that nobody needs, if it was shown to it. */
  boolean hide(SharedSegment segment) {
    if (!shows(segment)) {
      return false;
    }
    hiding.put(segment.id(), segment);
    say(StoreMessage.plain(Op.HIDE, 0, segment.id(), 0));
    return true;
  }

  /** How many leases it holds, and the bytes of what they are on. */
  StoreUsage.Client usage() {
    Set<StoredObject> held = new HashSet<>(leases.values());
    returning.forEach(get -> held.add(get.object));
    long bytes = held.stream().mapToLong(object -> object.bytes).sum();
    return new StoreUsage.Client(
        number,
        RemoteCaller.shown(user()),
        (int) end.peer().process(),
        leases.size() + returning.size(),
        bytes,
        account.bytes,
        account.spilled);
  }
}
