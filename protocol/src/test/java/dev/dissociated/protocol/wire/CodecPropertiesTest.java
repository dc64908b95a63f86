package dev.dissociated.protocol.wire;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.function.Consumer;
import net.jqwik.api.Arbitraries;
import net.jqwik.api.Arbitrary;
import net.jqwik.api.Example;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.Provide;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.NotEmpty;
import net.jqwik.api.constraints.Size;

/** What holds for any input: what is written is read back, and no bytes do more than be refused. */
class CodecPropertiesTest {
  @Property
  void shouldReadBackAnyMetadataMessage(
      @ForAll int sequence,
      @ForAll @NotEmpty byte[] flatbuffer,
      @ForAll @IntRange(max = 9) int gap) {
    ByteBuffer whole = ByteBuffer.allocate(gap + MetadataMessage.PREFIX_LENGTH + flatbuffer.length);
    whole.position(gap).put(MetadataMessage.prefix(sequence)).put(flatbuffer).position(gap);

    MetadataMessage read = MetadataMessage.parse(whole);

    assertFalse(read.endOfStream());
    assertEquals(sequence, read.sequence());
    assertEquals(ByteBuffer.wrap(flatbuffer), read.flatbuffer());
    assertEquals(gap, whole.position(), "the input stays as it is");
  }

  @Property
  void shouldReadBackAnyEndOfStream(@ForAll int sequence) {
    MetadataMessage read = MetadataMessage.parse(MetadataMessage.endOfStream(sequence));

    assertTrue(read.endOfStream());
    assertEquals(sequence, read.sequence());
    assertFalse(read.flatbuffer().hasRemaining());
  }

  @Property
  void shouldReadBackAnyBodyTag(@ForAll int sequence, @ForAll @IntRange(max = 1) int type) {
    long tag = BodyTag.of(type, sequence);

    assertEquals(type, BodyTag.type(tag));
    assertEquals(sequence, BodyTag.sequence(tag));
  }

  @Property
  void shouldAcceptOnlyTagsThatItWouldWrite(@ForAll long tag) {
    refusedAtMost(
        ignored -> assertEquals(tag, BodyTag.of(BodyTag.type(tag), BodyTag.sequence(tag))), tag);
  }

  @Property
  void shouldReadBackAnyBufferList(
      @ForAll("pairs") long[][] pairs, @ForAll @IntRange(max = 64) int padding) {
    long[] addresses = Arrays.stream(pairs).mapToLong(pair -> pair[0]).toArray();
    long[] lengths = Arrays.stream(pairs).mapToLong(pair -> pair[1]).toArray();
    BufferList list = new BufferList(Arrays.stream(lengths).sum() + padding, addresses, lengths);
    ByteBuffer bytes = ByteBuffer.allocate(BufferList.encodedLength(list.count()));
    list.encode(bytes);
    assertFalse(bytes.hasRemaining(), "the encoded length is exact");

    BufferList read = BufferList.parse(bytes.flip());

    assertEquals(list.total(), read.total());
    assertArrayEquals(addresses, read.addresses());
    assertArrayEquals(lengths, read.lengths());
  }

  @Provide
  Arbitrary<long[][]> pairs() {
    Arbitrary<Long> lengths = Arbitraries.longs().between(0, 1L << 50);
    return Arbitraries.longs()
        .flatMap(address -> lengths.map(length -> new long[] {address, length}))
        .array(long[][].class)
        .ofMaxSize(200);
  }

  @Property
  void shouldReadBackAnyFreeList(@ForAll @Size(min = 1, max = 100) long[] addresses) {
    ByteBuffer bytes = FreeList.encode(addresses, addresses.length);

    assertEquals(FreeList.encodedLength(addresses.length), bytes.remaining());
    assertArrayEquals(addresses, FreeList.parse(bytes));
  }

  @Property
  void shouldOnlyRefuseRandomBytes(@ForAll @Size(max = 200) byte[] bytes) {
    refusedAtMost(MetadataMessage::parse, ByteBuffer.wrap(bytes));
    refusedAtMost(BufferList::parse, ByteBuffer.wrap(bytes));
    refusedAtMost(FreeList::parse, ByteBuffer.wrap(bytes));
  }

  @Property
  void shouldOnlyRefuseListsWithRandomHeaders(
      @ForAll long total, @ForAll long count, @ForAll @Size(max = 8) long[] rest) {
    ByteBuffer bytes = ByteBuffer.allocate(16 + rest.length * 8).order(ByteOrder.LITTLE_ENDIAN);
    bytes.putLong(total).putLong(count);
    for (long value : rest) {
      bytes.putLong(value);
    }
    refusedAtMost(BufferList::parse, bytes.flip());
    bytes.putLong(8, rest.length / 2);
    refusedAtMost(BufferList::parse, bytes);
  }

  /** A list that is accepted never sums to more than it says, whatever the lengths are. */
  @Property
  void shouldNeverAcceptASumAboveTheTotal(
      @ForAll("anyLength") long total, @ForAll @Size(max = 5) long[] lengths) {
    ByteBuffer bytes = ByteBuffer.allocate(BufferList.encodedLength(lengths.length));
    new BufferList(total, new long[lengths.length], lengths).encode(bytes);
    refusedAtMost(
        input -> {
          long sum = 0;
          for (long length : BufferList.parse(input).lengths()) {
            assertTrue(length >= 0);
            sum = Math.addExact(sum, length);
          }
          assertTrue(sum <= total);
        },
        bytes.flip());
  }

  @Provide
  Arbitrary<Long> anyLength() {
    return Arbitraries.oneOf(
        Arbitraries.longs(), Arbitraries.of(0L, -1L, Long.MAX_VALUE, Long.MIN_VALUE));
  }

  @Property
  void shouldMeasureDistancesAcrossTheWrap(
      @ForAll int start, @ForAll @IntRange(max = Integer.MAX_VALUE) int ahead) {
    assertEquals(ahead, SequenceNumber.distance(start, start + ahead));
    assertEquals(-ahead, SequenceNumber.distance(start + ahead, start));
  }

  @Example
  void shouldRollOverAfterTheLastSequenceNumber() {
    int last = (int) 0xFFFF_FFFFL;

    assertEquals(0, SequenceNumber.next(last));
    assertEquals(1, SequenceNumber.distance(last, SequenceNumber.next(last)));
    assertEquals(-1, SequenceNumber.distance(0, last));
    assertEquals("4294967295", SequenceNumber.toString(last));
    assertEquals(Integer.MIN_VALUE, SequenceNumber.next(Integer.MAX_VALUE));
    assertEquals("2147483648", SequenceNumber.toString(Integer.MIN_VALUE));
  }

  private static <T> void refusedAtMost(Consumer<T> reader, T input) {
    try {
      reader.accept(input);
    } catch (DissociatedException refusal) {
      assertEquals(Code.PROTOCOL_VIOLATION, refusal.code());
    }
  }
}
