package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.shm.ShmFrame.Hello;
import dev.dissociated.shm.ShmFrame.Kind;
import dev.dissociated.shm.ShmFrame.SegmentNotice;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import org.junit.jupiter.api.Test;

class ShmFrameTest {
  private static final HexFormat HEX = HexFormat.of();

  private static String hex(ByteBuffer payload) {
    byte[] bytes = new byte[payload.remaining()];
    payload.get(bytes);
    return HEX.formatHex(bytes);
  }

  private static ByteBuffer bytes(String hex) {
    return ByteBuffer.wrap(HEX.parseHex(hex.replace(" ", ""))).order(ByteOrder.LITTLE_ENDIAN);
  }

  @Test
  void shouldWriteHeadersByteByByte() {
    ByteBuffer out = ByteBuffer.allocate(24).order(ByteOrder.LITTLE_ENDIAN);
    ShmFrame.putHeader(out, Kind.TAGGED, 0x0100000000000007L, 258);
    assertEquals("0201000000000000" + "0700000000000001" + "0300000000000000", hex(out.flip()));
    out.rewind();
    assertEquals(Kind.TAGGED, ShmFrame.kind(out, 0));
    assertEquals(258, ShmFrame.length(out, 0));
    assertEquals(0x0100000000000007L, ShmFrame.tag(out, 0));
  }

  @Test
  void shouldWriteAndReadPayloadsByteByByte() {
    byte[] nonce = HEX.parseHex("000102030405060708090a0b0c0d0e0f");
    byte[] set = HEX.parseHex("f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff");
    String hello =
        "44495043"
            + "0100"
            + "0000"
            + HEX.formatHex(nonce)
            + HEX.formatHex(set)
            + "0000000001000000"
            + "0000000002000000"
            + "e8030000"
            + "00000000";
    assertEquals(hello, hex(new Hello(nonce, set, 1L << 32, 2L << 32, 1000).encode()));
    Hello parsed = Hello.parse(bytes(hello));
    assertArrayEquals(nonce, parsed.nonce());
    assertArrayEquals(set, parsed.setId());
    assertEquals(1L << 32, parsed.wantData());
    assertEquals(2L << 32, parsed.freeData());
    assertEquals(1000, parsed.heartbeatMillis());

    String segment = "0300000000000000" + "0000001000000000";
    assertEquals(segment, hex(new SegmentNotice(3, 1 << 28).encode()));
    assertEquals(new SegmentNotice(3, 1 << 28), SegmentNotice.parse(bytes(segment)));

    String summary = "0100000000000000" + "0200000000000000" + "0300000000000000";
    assertEquals(summary, hex(ShmFrame.encodeSummary(new StreamSummary(1, 2, 3))));
    assertEquals(new StreamSummary(1, 2, 3), ShmFrame.parseSummary(bytes(summary)));

    String error = "02000000" + "6e6fc3bc";
    assertEquals(error, hex(ShmFrame.encodeError(new DissociatedException(Code.NOT_FOUND, "noü"))));
    assertEquals("noü", ShmFrame.parseError(bytes(error)).getMessage());
    assertEquals(Code.NOT_FOUND, ShmFrame.parseError(bytes(error)).code());
  }

  @Test
  void shouldCutLongErrorsAtACharacter() {
    String text = "a" + "ü".repeat(ShmFrame.MAX_ERROR_TEXT);
    ByteBuffer payload = ShmFrame.encodeError(new DissociatedException(Code.INTERNAL, text));
    assertTrue(payload.remaining() <= ShmFrame.ERROR_TEXT_OFFSET + ShmFrame.MAX_ERROR_TEXT);
    String read = ShmFrame.parseError(payload).getMessage();
    assertTrue(text.startsWith(read));
    assertTrue(read.getBytes(StandardCharsets.UTF_8).length > ShmFrame.MAX_ERROR_TEXT - 4);
  }

  @Test
  void shouldRefuseBadHeaders() {
    String[] bad = {
      "0000000000000000 0000000000000000 0000000000000000", // kind 0
      "0000000000000000 0000000000000000 0800000000000000", // kind 8
      "0000000000000000 0000000000000000 ff00000000000000", // kind 255
      "0000000000000000 0000000000000000 0601000000000000", // reserved byte
      "0000000000000000 0000000000000000 0600000000000080", // reserved byte, negative as a number
      "0000000000000000 0100000000000000 0600000000000000", // a heartbeat with a tag
      "0100000000000000 0000000000000000 0600000000000000", // a heartbeat with a payload
      "3f00000000000000 0000000000000000 0100000000000000", // a short hello
      "4100000000000000 0000000000000000 0100000000000000", // a long hello
      "0100001000000000 0000000000000000 0200000000000000", // metadata above 256 MiB
      "ffffffffffffffff 0000000000000000 0200000000000000", // length 2^64-1
      "ffffffffffffffff 0000000000000000 0300000000000000", // also for a body
      "0f00000000000000 0000000000000000 0400000000000000", // a short segment
      "0300000000000000 0000000000000000 0500000000000000", // an error without a code
      "0540000000000000 0000000000000000 0500000000000000", // an error above its limit
      "1700000000000000 0000000000000000 0700000000000000", // a short summary
    };
    for (String header : bad) {
      var refused =
          assertThrows(DissociatedException.class, () -> ShmFrame.kind(bytes(header), 0), header);
      assertEquals(Code.PROTOCOL_VIOLATION, refused.code());
    }
  }

  @Test
  void shouldRefuseBadPayloads() {
    ByteBuffer good = new Hello(new byte[16], new byte[16], 1, 2, 1000).encode();
    for (int[] change : new int[][] {{0, 'X'}, {59, 0x80}}) {
      ByteBuffer bad = ByteBuffer.allocate(64).put(good.duplicate()).flip();
      bad.put(change[0], (byte) change[1]);
      assertEquals(
          Code.PROTOCOL_VIOLATION,
          assertThrows(DissociatedException.class, () -> Hello.parse(bad)).code());
    }
    ByteBuffer newer = ByteBuffer.allocate(64).put(good.duplicate()).flip();
    newer.put(4, (byte) 2);
    assertEquals(
        Code.UNSUPPORTED,
        assertThrows(DissociatedException.class, () -> Hello.parse(newer)).code());
    for (String segment :
        new String[] {
          "0000000000000000 0010000000000000",
          "0000000100000000 0010000000000000",
          "0100000000000000 0000000000000000",
          "0100000000000000 0000000000010000 ".replace("0000000000010000", "0100000000010000"),
          "ffffffffffffffff ffffffffffffffff"
        }) {
      assertThrows(DissociatedException.class, () -> SegmentNotice.parse(bytes(segment)), segment);
    }
    assertThrows(
        DissociatedException.class,
        () -> ShmFrame.parseSummary(bytes("ffffffffffffffff 0000000000000000 0000000000000000")));
  }
}
