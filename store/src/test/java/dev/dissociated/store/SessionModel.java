package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.shouldFail;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;

import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;

/**
 * Plays the steps of {@link RandomSessionsTest} against a store, and knows what must come of each:
 * a map of names, and who holds what. For one thread, so that there is one order to compare.
 */
final class SessionModel implements AutoCloseable {
  static final int CLIENTS = 3;
  private static final int[] SIZES = {0, 10, 4096, 65_536, 65_537, 300_001};
  private static final Duration LONG = Duration.ofHours(1);

  /** An object, as it was put. */
  private static final class Made {
    final byte[] bytes;
    boolean pinned;
    boolean mortal;

    Made(int seed, int size) {
      bytes = new byte[size];
      new Random(seed).nextBytes(bytes);
    }
  }

  private record Held(StoreObject object, Made made) {}

  private record Claimed(StoreReference reference, Made made, Owner owner) {}

  private record Waiting(long request, String name) {}

  private record RawLease(long lease, BufferRef ref, Made made) {}

  /** Names as one client is told of them, and as it must be. */
  private record Watch(
      String prefix, Queue<StoreClient.Event> told, List<StoreClient.Event> expected) {}

  /** A client, which lasts until it was closed and holds nothing. */
  private static final class Owner {
    final StoreClient client;
    final List<Held> held = new ArrayList<>();
    final List<Watch> watches = new ArrayList<>();
    boolean closed;

    Owner(StoreClient client) {
      this.client = client;
    }
  }

  private final StoreFixture fixture;
  private final Map<String, Made> listed = new TreeMap<>();
  private final Owner[] owners = new Owner[CLIENTS];
  private final List<Owner> leaving = new ArrayList<>();
  private final List<Claimed> claims = new ArrayList<>();
  private final RawClient waiter;
  private final List<Waiting> waiting = new ArrayList<>();
  private final List<RawLease> came = new ArrayList<>();
  private long lastRequest = 100;
  private int lastMade;

  SessionModel(StoreFixture fixture) {
    this.fixture = fixture;
    waiter = RawClient.opened(fixture.store.socket());
    Arrays.setAll(owners, i -> new Owner(fixture.client()));
  }

  void play(RandomSessionsTest.Step step) {
    Owner owner = owners[step.client()];
    String name = step.name();
    int number = step.number();
    switch (step.action()) {
      case PUT -> put(owner.client, name, number);
      case GET -> get(owner, name);
      case WAIT -> await(name);
      case READ -> pick(owner.held, number, false);
      case RELEASE -> pick(owner.held, number, true);
      case DELETE -> delete(owner.client, name);
      case PIN -> pin(owner.client, name, number % 2 == 0);
      case EXPIRE -> expire(owner.client, name, number % 3);
      case SUBSCRIBE -> subscribe(owner, number % 2 == 0 ? "" : name.substring(0, 1));
      case CLAIM -> claim(owner, number);
      case TAKE -> take(owner, number);
      case LEAVE -> leave(step.client(), number % 2 == 0);
      case CHECK -> check();
    }
  }

  // ---- names

  private void put(StoreClient client, String name, int number) {
    Made made = new Made(++lastMade, SIZES[number % SIZES.length]);
    boolean replace = number / 7 % 2 == 0;
    PutOptions how = new PutOptions(replace, number / 11 % 3 == 0, ttl(number / 13 % 3 == 0));
    made.pinned = how.pinned();
    made.mortal = !how.ttl().isZero();
    int way = number / 17 % 3;
    if (listed.containsKey(name) && !replace) {
      shouldFail(Code.ALREADY_EXISTS, () -> put(client, name, made.bytes, how, way));
      return;
    }
    put(client, name, made.bytes, how, way);
    listed.put(name, made);
    tell(name, false);
    receive(name, made);
  }

  private static Duration ttl(boolean mortal) {
    return mortal ? LONG : Duration.ZERO;
  }

  /** From the heap, from memory that the daemon reads, or made where it stays. */
  private void put(StoreClient client, String name, byte[] bytes, PutOptions how, int way) {
    if (way == 0) {
      client.put(name, ByteBuffer.wrap(bytes), how);
    } else if (way == 1) {
      try (ArrowBuf buffer = fixture.allocator.buffer(bytes.length)) {
        buffer.writeBytes(bytes);
        client.put(name, buffer, how);
      }
    } else {
      try (ObjectBuilder builder = client.create(name, bytes.length + 64L, how);
          ArrowBuf buffer = builder.allocator().buffer(bytes.length)) {
        buffer.writeBytes(bytes);
        builder.sealBytes(buffer, bytes.length);
      }
    }
  }

  private void delete(StoreClient client, String name) {
    if (!listed.containsKey(name)) {
      shouldFail(Code.NOT_FOUND, () -> client.delete(name));
      return;
    }
    client.delete(name);
    listed.remove(name);
    tell(name, true);
  }

  private void pin(StoreClient client, String name, boolean pinned) {
    if (!listed.containsKey(name)) {
      shouldFail(Code.NOT_FOUND, () -> client.pin(name, pinned));
      return;
    }
    client.pin(name, pinned);
    listed.get(name).pinned = pinned;
  }

  private void expire(StoreClient client, String name, int how) {
    Duration ttl = how == 0 ? Duration.ofMillis(1) : ttl(how == 1);
    if (!listed.containsKey(name)) {
      shouldFail(Code.NOT_FOUND, () -> client.expire(name, ttl));
      return;
    }
    client.expire(name, ttl);
    listed.get(name).mortal = how == 1;
    if (how == 0) {
      StoreFixture.await("the end of " + name, () -> !client.contains(name));
      listed.remove(name);
      tell(name, true);
    }
  }

  // ---- leases

  private void get(Owner owner, String name) {
    Made made = listed.get(name);
    if (made == null) {
      shouldFail(Code.NOT_FOUND, () -> owner.client.get(name));
      return;
    }
    keep(owner, owner.client.get(name), made);
  }

  private static void keep(Owner owner, StoreObject object, Made made) {
    owner.held.add(new Held(object, made));
    assertArrayEquals(made.bytes, object.toByteArray());
  }

  /** Reads one of them, which must still be what it was, and lets it go if so wanted. */
  private void pick(List<Held> held, int number, boolean release) {
    if (held.isEmpty()) {
      return;
    }
    int index = number % held.size();
    Held one = held.get(index);
    assertArrayEquals(one.made.bytes, one.object.toByteArray());
    if (release) {
      held.remove(index);
      one.object.close();
    }
  }

  private void claim(Owner owner, int number) {
    if (!owner.held.isEmpty()) {
      Held one = owner.held.get(number % owner.held.size());
      claims.add(new Claimed(one.object.claim(LONG), one.made, owner));
    }
  }

  private void take(Owner owner, int number) {
    if (!claims.isEmpty()) {
      Claimed claim = claims.remove(number % claims.size());
      keep(owner, owner.client.take(claim.reference), claim.made);
      shouldFail(Code.NOT_FOUND, () -> owner.client.take(claim.reference));
    }
  }

  /** A get that waits for its name, on a connection that goes on meanwhile. */
  private void await(String name) {
    long request = ++lastRequest;
    waiter.send(StoreMessage.named(Op.GET, name, 0, LONG.toMillis()).withRequest(request));
    waiting.add(new Waiting(request, name));
    if (listed.containsKey(name)) {
      receive(name, listed.get(name));
    } else {
      answer(StoreMessage.plain(Op.USAGE, ++lastRequest, 0, 0)); // the get has been read before it
    }
  }

  /** All who wait for the name have got the object. */
  private void receive(String name, Made made) {
    for (Waiting get : waiting.stream().filter(get -> get.name.equals(name)).toList()) {
      waiting.remove(get);
      StoreMessage object = next();
      assertEquals(Op.OBJECT, object.op());
      assertEquals(get.request, object.request());
      BufferRef ref = object.buffers().isEmpty() ? null : object.buffers().get(0);
      RawLease lease = new RawLease(object.a(), ref, made);
      came.add(lease);
      assertArrayEquals(made.bytes, read(lease));
    }
  }

  private byte[] read(RawLease lease) {
    byte[] bytes = new byte[lease.ref == null ? 0 : (int) lease.ref.length()];
    if (bytes.length > 0) {
      long at = waiter.connection.remoteMemory().resolve(lease.ref.address(), bytes.length);
      MemoryUtil.copyFromMemory(at, bytes, 0, bytes.length);
    }
    return bytes;
  }

  private StoreMessage answer(StoreMessage request) {
    waiter.send(request);
    StoreMessage answer = next();
    assertEquals(request.request(), answer.request());
    return answer;
  }

  /** The next message, once segments are hidden that are to be. */
  private StoreMessage next() {
    while (true) {
      StoreMessage message = waiter.answer();
      if (message.op() != Op.HIDE) {
        return message;
      }
      waiter.connection.forget((int) message.a());
      waiter.send(StoreMessage.plain(Op.HIDDEN, 0, message.a(), 0));
    }
  }

  // ---- clients

  private void subscribe(Owner owner, String prefix) {
    Watch watch = new Watch(prefix, new ConcurrentLinkedQueue<>(), new ArrayList<>());
    owner.client.subscribe(prefix, watch.told::add);
    owner.watches.add(watch);
  }

  private void tell(String name, boolean gone) {
    StoreClient.Event event = new StoreClient.Event(name, ObjectType.BYTES, gone);
    for (Owner owner : owners) {
      owner.watches.stream()
          .filter(watch -> name.startsWith(watch.prefix))
          .forEach(watch -> watch.expected.add(event));
    }
  }

  /** Another client takes its place; what it holds stays, if it does not let go. */
  private void leave(int index, boolean release) {
    Owner owner = owners[index];
    checkEvents(owner);
    if (release) {
      owner.held.forEach(held -> held.object.close());
      owner.held.clear();
    }
    owner.client.close();
    owner.closed = true;
    leaving.add(owner);
    owners[index] = new Owner(fixture.client());
    shouldFail(Code.CANCELLED, () -> owner.client.contains("a"));
    sweep();
  }

  /** Who was closed and holds nothing is gone, and with it its claims. */
  private void sweep() {
    leaving.removeIf(owner -> owner.held.isEmpty());
    claims.removeIf(claim -> claim.owner.closed && claim.owner.held.isEmpty());
    long clients = CLIENTS + leaving.size() + 1;
    StoreFixture.await("the ends", () -> fixture.store.usage().clients().size() == clients);
  }

  // ---- comparing

  private void check() {
    StoreClient client = owners[0].client;
    List<ObjectInfo> rows = client.list("");
    assertEquals(List.copyOf(listed.keySet()), rows.stream().map(ObjectInfo::name).toList());
    for (ObjectInfo row : rows) {
      Made made = listed.get(row.name());
      assertEquals(made.bytes.length, row.bytes(), row.toString());
      assertEquals(made.pinned, row.pinned(), row.toString());
      assertEquals(made.mortal, row.ttlMillis() > 0, row.toString());
      assertEquals(ObjectType.BYTES, row.type());
    }
    for (Owner owner : owners) {
      checkEvents(owner);
    }
    came.forEach(lease -> assertArrayEquals(lease.made.bytes, read(lease)));
    long leases = claims.size() + came.size();
    for (List<Owner> some : List.of(leaving, List.of(owners))) {
      leases += some.stream().mapToLong(owner -> owner.held.size()).sum();
    }
    long expected = leases;
    StoreFixture.await("leases=" + leases, () -> fixture.store.usage().leases() == expected);
  }

  /** What a client is told comes in order with its answers. */
  private static void checkEvents(Owner owner) {
    owner.client.usage();
    for (Watch watch : owner.watches) {
      assertEquals(watch.expected, List.copyOf(watch.told));
    }
  }

  /** Everything is compared, let go and deleted; then nothing is left. */
  void finish() {
    check();
    for (Owner owner : leaving) {
      owner.held.forEach(held -> held.object.close());
      owner.held.clear();
    }
    sweep();
    while (!claims.isEmpty()) {
      take(owners[0], 0);
    }
    for (Waiting get : List.copyOf(waiting)) {
      if (waiting.contains(get)) {
        put(owners[1].client, get.name, 0);
      }
    }
    check();
    release();
    List.copyOf(listed.keySet()).forEach(name -> delete(owners[2].client, name));
    check();
    assertEquals(0, fixture.store.usage().objects());
    StoreFixture.await(
        "the memory, " + fixture.store.usage(),
        () -> {
          answer(StoreMessage.plain(Op.USAGE, ++lastRequest, 0, 0)); // hides what is to be hidden
          return fixture.store.usage().used() == 0 && fixture.store.usage().going() == 0;
        });
  }

  private void release() {
    for (Owner owner : owners) {
      owner.held.forEach(held -> held.object.close());
      owner.held.clear();
    }
    came.forEach(lease -> waiter.send(StoreMessage.release(lease.lease)));
    came.clear();
  }

  @Override
  public void close() {
    waiter.close();
    for (Owner owner : leaving) {
      owner.held.forEach(held -> held.object.close());
    }
    for (Owner owner : owners) {
      owner.held.forEach(held -> held.object.close());
      owner.client.close();
    }
  }
}
