package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.shm.GuestListener;
import dev.dissociated.shm.HandedSegment;
import dev.dissociated.shm.PeerMemory;
import dev.dissociated.shm.SharedSegment;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;

/**
 * An object on its way in: what a client has handed over and sent along, until all of it is the
 * store's. Closing it gives back whatever has not become an object. Guarded by the store's lock.
 */
final class Draft implements AutoCloseable {
  private static final int BUFFER_ALIGNMENT = 8;

  private final StoreMessage put;
  private final List<BufferRef> refs;
  private final ByteBuffer inline;
  private final Map<Integer, HandedSegment> handed = new HashMap<>();
  private final Map<Integer, SharedSegment> adopted = new HashMap<>();
  private final Map<Integer, Arena> arenas = new HashMap<>();
  private final Map<BufferRef, Pieces> copied = new IdentityHashMap<>();
  private final long blockLength;
  private ArrowBuf block;
  private PeerMemory client;
  private boolean filled;

  /**
   * Takes from {@code waiting} and {@code allocated} what the message names, whatever happens.
   *
   * @throws DissociatedException INVALID_ARGUMENT when a segment is not there, or is not as it must
   *     be
   */
  Draft(StoreMessage put, Map<Integer, HandedSegment> waiting, SessionArenas allocated) {
    this.put = put;
    this.refs = put.buffers();
    for (BufferRef ref : refs) {
      if (ref.liesIn(BufferRef.Kind.SHARED)) {
        HandedSegment segment = waiting.remove(ref.segment());
        if (segment != null) {
          handed.put(ref.segment(), segment);
        }
      }
    }
    // The bytes of the message are gone when this put has to wait.
    this.inline = copy(put.inline());
    this.blockLength = blockLength();
    boolean done = false;
    try {
      takeArenas(allocated);
      for (BufferRef ref : refs) {
        if (ref.liesIn(BufferRef.Kind.COPIED)) {
          copied.put(ref, Pieces.read(inline, ref));
        }
      }
      check();
      done = true;
    } finally {
      if (!done) {
        close();
      }
    }
  }

  private void takeArenas(SessionArenas allocated) {
    for (BufferRef ref : refs) {
      if (ref.liesIn(BufferRef.Kind.DEVICE) && !arenas.containsKey(ref.arena())) {
        Arena arena = allocated.take(ref.arena());
        if (arena != null) {
          arenas.put(ref.arena(), arena);
        }
      }
    }
  }

  private static ByteBuffer copy(ByteBuffer bytes) {
    return ByteBuffer.allocate(bytes.remaining()).put(bytes).flip();
  }

  private void check() {
    for (int i = 0; i < refs.size(); i++) {
      BufferRef ref = refs.get(i);
      if (ref.liesIn(BufferRef.Kind.DEVICE)) {
        checkOnDevice(i, ref);
      }
      if (!ref.liesIn(BufferRef.Kind.SHARED)) {
        continue;
      }
      HandedSegment segment = handed.get(ref.segment());
      if (segment == null) {
        throw refused(i, "its segment was not handed over, segment=" + ref.segment());
      }
      if (ref.offset() % BUFFER_ALIGNMENT != 0 || ref.offset() > segment.size() - ref.length()) {
        throw refused(
            i, "outside its segment or not aligned, offset=" + ref.offset() + " " + ref.length());
      }
    }
  }

  private void checkOnDevice(int buffer, BufferRef ref) {
    Arena arena = arenas.get(ref.arena());
    if (arena == null) {
      throw refused(
          buffer,
          "its arena was not allocated on this connection, or is put, arena=" + ref.arena());
    }
    if (ref.offset() % BUFFER_ALIGNMENT != 0 || ref.offset() > arena.asked - ref.length()) {
      throw refused(
          buffer,
          "outside its arena or not aligned, offset="
              + ref.offset()
              + " length="
              + ref.length()
              + " allocated="
              + arena.asked);
    }
    if (buffer == 0 && put.type() != ObjectType.BYTES) {
      throw refused(buffer, "what says how to read an object lies in host memory");
    }
    if (arenas.values().stream().anyMatch(other -> !other.device().equals(arena.device()))) {
      throw refused(buffer, "an object lies on one device only, device=" + arena.device());
    }
  }

  private DissociatedException refused(int buffer, String why) {
    return new DissociatedException(
        Code.INVALID_ARGUMENT,
        "object not put: a buffer is refused: " + why + " buffer=" + buffer + " name=" + name());
  }

  String name() {
    return put.name();
  }

  boolean replaces() {
    return put.has(Op.Flags.REPLACE);
  }

  private long blockLength() {
    long length = 0;
    for (BufferRef ref : refs) {
      if (!ref.isPlaced()) {
        length += ObjectMemory.aligned(ref.length());
      }
    }
    return length;
  }

  /**
   * What the kernel counts for it.
   *
   * @throws DissociatedException INVALID_ARGUMENT when a descriptor is not what it must be
   */
  long needs() {
    long needs = block == null ? blockLength : 0;
    for (HandedSegment segment : handed.values()) {
      needs += segment.charge();
    }
    return needs;
  }

  // ---- what lies in the client's memory

  /** Whether something of it lies in the client's memory, and has not been copied. */
  boolean mustFill() {
    return !copied.isEmpty() && !filled;
  }

  /** Where to copy from; closed with this. */
  void from(PeerMemory memory) {
    client = memory;
  }

  /**
   * Copies what lies in the client's memory, if there is room for it. Takes long, so not with the
   * lock: the draft is this thread's meanwhile.
   */
  void fill(GuestListener memory, Copier copier) {
    if (block == null) {
      block = memory.allocatePublic(blockLength);
    }
    if (block == null) {
      return;
    }
    long at = 0;
    for (BufferRef ref : refs) {
      if (copied.containsKey(ref)) {
        copier.copy(client, copied.get(ref), block.memoryAddress() + at);
      }
      at += ref.isPlaced() ? 0 : ObjectMemory.aligned(ref.length());
    }
    filled = true;
  }

  // ---- into the store

  /** Takes in what is not in yet; false when there was too little room. */
  boolean takeIn(GuestListener memory) {
    for (var iterator = handed.entrySet().iterator(); iterator.hasNext(); ) {
      Map.Entry<Integer, HandedSegment> next = iterator.next();
      SharedSegment segment = memory.adopt(next.getValue());
      if (segment == null) {
        return false;
      }
      adopted.put(next.getKey(), segment);
      iterator.remove();
    }
    if (blockLength > 0 && block == null) {
      block = memory.allocatePublic(blockLength);
      return block != null;
    }
    return true;
  }

  /** The object, which owns the memory from here on. */
  StoredObject finish(int user, Account account) {
    List<ObjectMemory.Part> parts = new ArrayList<>(refs.size());
    long at = 0;
    for (BufferRef ref : refs) {
      if (ref.length() == 0) {
        parts.add(new ObjectMemory.Part(null, 0, 0));
      } else if (ref.kind() == BufferRef.Kind.SHARED) {
        SharedSegment segment = adopted.get(ref.segment());
        parts.add(new ObjectMemory.Part(segment, ref.offset(), ref.length()));
      } else if (ref.kind() == BufferRef.Kind.DEVICE) {
        Arena arena = arenas.get(ref.arena());
        parts.add(new ObjectMemory.Part(null, arena, ref.offset(), ref.length()));
      } else {
        if (ref.kind() == BufferRef.Kind.INLINE) {
          block.setBytes(at, inline.slice((int) ref.address(), (int) ref.length()));
        }
        parts.add(new ObjectMemory.Part(null, at, ref.length()));
        at += ObjectMemory.aligned(ref.length());
      }
    }
    StoredObject object =
        new StoredObject(
            name(),
            put.type(),
            user,
            account,
            new ObjectMemory(
                parts, List.copyOf(adopted.values()), List.copyOf(arenas.values()), block));
    object.pinned = put.has(Op.Flags.PIN);
    object.liveFor(put.a(), System.nanoTime());
    adopted.clear();
    arenas.clear();
    block = null;
    return object;
  }

  @Override
  public void close() {
    handed.values().forEach(HandedSegment::close);
    handed.clear();
    adopted.values().forEach(SharedSegment::close);
    adopted.clear();
    arenas.values().forEach(Arena::giveUp);
    arenas.clear();
    if (block != null) {
      block.close();
      block = null;
    }
    if (client != null) {
      client.close();
    }
  }
}
