package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.jna.Native;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Refusing;
import dev.dissociated.shm.ShmFrame.Kind;
import java.nio.ByteBuffer;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.util.MemoryUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Segments that a client makes, freezes and hands over, and what a server refuses. */
class HandOverTest {
  private static final long TAG = 3L << 32;
  private static final long LIMIT = 1 << 20;
  private static final int PAGE = Linux.PAGE;

  private final LinkedBlockingQueue<HandedSegment> handed = new LinkedBlockingQueue<>();
  private final LinkedBlockingQueue<GuestEnd> guests = new LinkedBlockingQueue<>();
  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  /** Keeps what is handed over. */
  private final class Handler implements GuestHandler {
    @Override
    public void handed(HandedSegment segment) {
      handed.add(segment);
    }

    @Override
    public void tick(long nanoTime) {}

    @Override
    public void message(ByteBuffer message) {}

    @Override
    public ArrowBuf allocate(long tag, long length) {
      return null;
    }

    @Override
    public void tagged(long tag, ByteBuffer payload) {}

    @Override
    public void tagged(long tag, ArrowBuf payload) {
      payload.close();
    }

    @Override
    public void closed(DissociatedException cause) {}
  }

  private GuestListener listen() {
    GuestListener listener =
        (GuestListener)
            new ShmTransport()
                .listen(ListenOptions.anywhere(LIMIT), connection -> Refusing.MESSAGES);
    listener.admit(
        TAG,
        connection -> {
          guests.add(connection);
          return new Handler();
        });
    return listener;
  }

  private GuestClientEnd connect(GuestListener listener) throws InterruptedException {
    GuestClientEnd client = (GuestClientEnd) new ShmTransport().connect(listener.location());
    client.sendTagged(TAG, ByteBuffer.allocate(1));
    client.flush();
    return client;
  }

  private <T> T next(LinkedBlockingQueue<T> queue) throws InterruptedException {
    T taken = queue.poll(20, TimeUnit.SECONDS);
    assertTrue(taken != null, "nothing came");
    return taken;
  }

  private static void shouldRefuse(int file, long size, String why) {
    try (HandedSegment segment = new HandedSegment(1, size, Linux.reopen(file, Linux.O_RDONLY))) {
      DissociatedException refused =
          assertThrows(DissociatedException.class, () -> segment.charge());
      assertEquals(Code.INVALID_ARGUMENT, refused.code());
      assertTrue(refused.getMessage().contains(why), refused.getMessage());
    }
  }

  @Test
  void shouldStayReadableWhereItWasAndTakeNoMoreWrites() {
    try (OwnSegment segment = OwnSegment.mapped(64 * PAGE)) {
      segment.commit(10 * PAGE);
      MemoryUtil.putLong(segment.address() + 8, 4711);
      segment.freeze(2 * PAGE - 1);
      assertEquals(2 * PAGE, segment.size());
      assertEquals(4711, MemoryUtil.getLong(segment.address() + 8));
      int all =
          Linux.F_SEAL_SEAL
              | Linux.F_SEAL_SHRINK
              | Linux.F_SEAL_GROW
              | Linux.F_SEAL_WRITE
              | Linux.F_SEAL_FUTURE_WRITE;
      assertEquals(all, Linux.seals(segment.descriptor()) & all);
      assertEquals(-1, Libc.mprotect(segment.address(), PAGE, Linux.PROT_READ | Linux.PROT_WRITE));
      int writable = Linux.reopen(segment.descriptor(), Linux.O_RDWR);
      assertEquals(-1, Libc.write(writable, segment.address(), 8));
      assertEquals("EPERM", Linux.errorName(Native.getLastError()));
      Linux.close(writable);
      assertThrows(DissociatedException.class, () -> segment.commit(PAGE));
    }
  }

  @Test
  void shouldRefuseWhatIsNotSealedForGood() {
    int file = Linux.createMemoryFile("dissociated");
    Linux.truncate(file, PAGE);
    shouldRefuse(file, PAGE, "sealed");
    Linux.addSeals(file, Linux.F_SEAL_SHRINK | Linux.F_SEAL_GROW | Linux.F_SEAL_FUTURE_WRITE);
    shouldRefuse(file, PAGE, "sealed");
    Linux.addSeals(file, Linux.F_SEAL_WRITE);
    shouldRefuse(file, PAGE, "sealed");
    Linux.addSeals(file, Linux.F_SEAL_SEAL);
    shouldRefuse(file, PAGE, "holes");
    shouldRefuse(file, 2 * PAGE, "another size");
    shouldRefuse(file, PAGE - 1, "another size");
    Linux.close(file);
    int socket = Linux.eventDescriptor();
    try (HandedSegment segment = new HandedSegment(1, 8, socket)) {
      assertThrows(DissociatedException.class, () -> segment.charge());
    }
  }

  @Test
  void shouldKeepTheKernelFromFreezingUnderAWritableMapping() {
    int file = Linux.createMemoryFile("dissociated");
    Linux.truncate(file, PAGE);
    long address = Linux.map(file, PAGE, Linux.PROT_READ | Linux.PROT_WRITE);
    assertThrows(DissociatedException.class, () -> Linux.addSeals(file, Linux.F_SEAL_WRITE));
    Linux.unmap(address, PAGE);
    Linux.close(file);
  }

  @Test
  void shouldOutliveItsProducerAndCountUntilTheLastClientConceals() throws Exception {
    try (GuestListener listener = listen();
        GuestClientEnd reader = connect(listener)) {
      GuestEnd toReader = next(guests);
      try (GuestClientEnd producer = connect(listener);
          OwnSegment own = OwnSegment.appended()) {
        next(guests); // before, descriptors are dropped
        MemoryOf text = new MemoryOf(3 * PAGE);
        own.append(text.address, 3 * PAGE);
        own.freeze(0);
        producer.hand(7, own);
        producer.remoteMemory().close();
      }
      HandedSegment segment = next(handed);
      assertEquals(7, segment.id());
      assertEquals(3 * PAGE, segment.size());
      long base = listener.memoryUsage().reserved();
      SharedSegment shared = listener.adopt(segment);
      segment.close();
      assertEquals(base + 3 * PAGE, listener.memoryUsage().reserved());
      assertEquals(3, MemoryUtil.getByte(shared.address() + 3));

      assertFalse(toReader.shows(shared));
      long remote = toReader.show(shared);
      toReader.sendTagged(TAG, ByteBuffer.allocate(1));
      toReader.flushSoon();
      Recorder recorder = new Recorder();
      assertTrue(reader.poll(recorder, TimeUnit.SECONDS.toNanos(20)));
      long local = reader.remoteMemory().resolve(remote, 3 * PAGE);
      assertEquals(5, MemoryUtil.getByte(local + 5));
      assertTrue(toReader.shows(shared));
      shared.close();
      assertEquals(base + 3 * PAGE, listener.memoryUsage().reserved());
      assertEquals(6, MemoryUtil.getByte(local + 6));
      reader.forget((int) (remote >>> ShmFrame.OFFSET_BITS));
      toReader.conceal(shared);
      assertEquals(base, listener.memoryUsage().reserved());
      reader.remoteMemory().close();
    }
  }

  @Test
  void shouldRefuseSegmentsBeyondTheLimitAndCountNothing() throws Exception {
    try (GuestListener listener = listen()) {
      try (OwnSegment own = OwnSegment.mapped(2 * LIMIT)) {
        own.freeze(2 * LIMIT);
        long base = listener.memoryUsage().reserved();
        int copy = Linux.reopen(own.descriptor(), Linux.O_RDONLY);
        try (HandedSegment segment = new HandedSegment(1, own.size(), copy)) {
          assertNull(listener.adopt(segment));
        }
        assertEquals(base, listener.memoryUsage().reserved());
      }
    }
  }

  @Test
  void shouldEndConnectionsThatHandOverWithoutADescriptorOrBeforeTheyAreGuests() throws Exception {
    int file = Linux.createMemoryFile("dissociated");
    try (GuestListener listener = listen()) {
      byte[] asGuest = RawPeer.frame(Kind.TAGGED, TAG, new byte[1]);
      byte[] segment = RawPeer.segment(1, PAGE);
      try (RawPeer hostile = RawPeer.connect(listener.location().path())) {
        hostile.send(asGuest);
        next(guests);
        hostile.send(segment);
        hostile.readToEnd();
      }
      try (RawPeer hostile = RawPeer.connect(listener.location().path())) {
        hostile.send(segment, file);
        hostile.readToEnd();
      }
      try (RawPeer hostile = RawPeer.connect(listener.location().path())) {
        hostile.send(asGuest);
        next(guests);
        hostile.send(RawPeer.frame(Kind.HEARTBEAT, 0, new byte[0]), file);
        hostile.readToEnd();
      }
      try (RawPeer hostile = RawPeer.connect(listener.location().path())) {
        hostile.send(asGuest);
        next(guests);
        hostile.send(RawPeer.segment(0, PAGE), file);
        hostile.readToEnd();
      }
      assertTrue(handed.isEmpty());
    } finally {
      Linux.close(file);
    }
  }

  /** Bytes 0, 1, 2, ... of the garbage collector's. */
  private static final class MemoryOf {
    private final NativeBuffer buffer;
    final long address;

    MemoryOf(int length) {
      buffer = new NativeBuffer(length);
      address = buffer.address;
      for (int i = 0; i < length; i++) {
        buffer.bytes.put(i, (byte) i);
      }
    }
  }

  /** Whether its pages are huge is the kernel's matter; that there are as many as needed is not. */
  @Test
  void shouldHaveAllPagesOfAnySizeAndNoMoreOnceFrozen() {
    long huge = HugePaging.SIZE;
    for (long size : new long[] {PAGE, huge - PAGE, huge, huge + PAGE, 4 * huge - PAGE}) {
      try (OwnSegment segment = OwnSegment.mapped(4 * huge)) {
        for (long step = 16 * PAGE; step < size; step *= 3) {
          segment.commit(step);
        }
        segment.commit(Math.min(4 * huge, (size + huge - 1) / huge * huge));
        for (long at = 0; at < size; at += PAGE) {
          MemoryUtil.putLong(segment.address() + at, at);
        }
        segment.freeze(size);
        try (HandedSegment handed = segment.duplicate()) {
          assertEquals(size, handed.charge(), "size=" + size);
        }
        for (long at = 0; at < size; at += PAGE) {
          assertEquals(at, MemoryUtil.getLong(segment.address() + at));
        }
      }
    }
  }

  @Test
  void shouldLeaveToSmallPagesWhatHugeOnesDoNotFit() {
    long huge = HugePaging.SIZE;
    int file = Linux.createMemoryFile("test");
    try {
      Linux.truncate(file, 2 * huge);
      long address = HugePaging.map(file, 2 * huge, Linux.PROT_READ | Linux.PROT_WRITE);
      try {
        assertEquals(PAGE, HugePaging.make(file, address, PAGE, 2 * huge), "not aligned");
        assertEquals(0, HugePaging.make(file, address, 0, huge - PAGE), "too short");
        int readOnly = Linux.reopen(file, Linux.O_RDONLY);
        assertEquals(0, HugePaging.make(readOnly, address, 0, 2 * huge), "no memory to be had");
        Linux.close(readOnly);
        assertEquals(0, Linux.status(file).blocks());
      } finally {
        Linux.unmap(address, 2 * huge);
      }
    } finally {
      Linux.close(file);
    }
  }

  /** A number of its own at every eighth byte. */
  private static ByteBuffer numbers(long from, int bytes, boolean direct) {
    ByteBuffer buffer = direct ? ByteBuffer.allocateDirect(bytes) : ByteBuffer.allocate(bytes);
    for (int at = 0; at < bytes; at += Long.BYTES) {
      buffer.putLong(at, from + at);
    }
    return buffer;
  }

  @Test
  void shouldKeepWhatIsAppendedInAnySteps() {
    int huge = (int) HugePaging.SIZE;
    for (int step : new int[] {40 * PAGE + 8, huge / 2, huge, 3 * huge + 8}) {
      for (boolean smallFromTheMiddle : new boolean[] {false, true}) {
        try (OwnSegment segment = OwnSegment.appended()) {
          while (segment.size() < 9L * huge) {
            boolean direct = segment.size() / step % 2 == 0;
            ByteBuffer bytes = numbers(segment.size(), step, direct);
            if (direct) {
              segment.append(MemoryUtil.getByteBufferAddress(bytes), step);
            } else {
              segment.append(bytes);
              assertFalse(bytes.hasRemaining());
            }
            if (smallFromTheMiddle && segment.size() > 5L * huge) {
              segment.useSmallPages();
            }
          }
          segment.freeze(0);
          shouldHoldNumbers(segment);
        }
      }
    }
  }

  private static void shouldHoldNumbers(OwnSegment segment) {
    long pages = (segment.size() + PAGE - 1) / PAGE;
    try (HandedSegment handed = segment.duplicate()) {
      assertEquals(pages * PAGE, handed.charge());
    }
    long address = Linux.map(segment.descriptor(), segment.size(), Linux.PROT_READ);
    for (long at = 0; at < segment.size(); at += Long.BYTES) {
      assertEquals(at, Long.reverseBytes(MemoryUtil.getLong(address + at)));
    }
    Linux.unmap(address, segment.size());
  }
}
