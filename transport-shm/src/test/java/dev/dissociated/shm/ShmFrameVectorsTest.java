package dev.dissociated.shm;

import static dev.dissociated.protocol.wire.Vectors.hex;
import static dev.dissociated.protocol.wire.Vectors.object;
import static dev.dissociated.protocol.wire.Vectors.u64;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.StreamSummary;
import dev.dissociated.protocol.wire.Vectors;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The frame codec against the shared vectors; see format-docs/shm-layout.md. */
final class ShmFrameVectorsTest {
  @TestFactory
  List<DynamicTest> shouldReadFrames() {
    return Vectors.tests("shm-frame", ShmFrameVectorsTest::read);
  }

  @TestFactory
  List<DynamicTest> shouldReadFramesOfRings() {
    return Vectors.tests("shm-ring", ShmFrameVectorsTest::read);
  }

  private static ObjectNode read(JsonNode vector) {
    ByteBuffer in = Vectors.bytes(vector).order(ByteOrder.LITTLE_ENDIAN);
    ShmFrame.Kind kind = ShmFrame.kind(in, 0);
    assertEquals(
        in.remaining() - ShmFrame.HEADER_LENGTH,
        ShmFrame.length(in, 0),
        "the vector holds the whole payload");
    ByteBuffer header = ByteBuffer.allocate(ShmFrame.HEADER_LENGTH).order(ByteOrder.LITTLE_ENDIAN);
    ShmFrame.putHeader(header, kind, ShmFrame.tag(in, 0), ShmFrame.length(in, 0));
    assertEquals(hex(in.slice(0, ShmFrame.HEADER_LENGTH)), hex(header.flip()), "written again");

    ByteBuffer payload = in.position(ShmFrame.HEADER_LENGTH);
    ObjectNode read = object().put("frame", kind.name());
    switch (kind) {
      case HELLO -> hello(read, payload);
      case UNTAGGED -> read.put("payload", hex(payload));
      case TAGGED -> read.put("tag", u64(ShmFrame.tag(in, 0))).put("payload", hex(payload));
      case SEGMENT -> segment(read, payload);
      case ERROR -> error(read, payload, vector.get("name").asText());
      case HEARTBEAT -> {
        // no payload
      }
      case SUMMARY -> summary(read, payload);
      case RING -> ring(read, payload);
      case TURN -> {
        // no payload
      }
    }
    return read;
  }

  private static void hello(ObjectNode read, ByteBuffer payload) {
    ShmFrame.Hello hello = ShmFrame.Hello.parse(payload);
    assertEquals(hex(payload), hex(hello.encode()), "written again");
    // The codec knows no other version, so there is no field for it.
    read.put("version", 1)
        .put("nonce", HexFormat.of().formatHex(hello.nonce()))
        .put("segment_set", HexFormat.of().formatHex(hello.setId()))
        .put("want_data", u64(hello.wantData()))
        .put("free_data", u64(hello.freeData()))
        .put("heartbeat_ms", hello.heartbeatMillis());
  }

  private static void segment(ObjectNode read, ByteBuffer payload) {
    ShmFrame.SegmentNotice segment = ShmFrame.SegmentNotice.parse(payload);
    assertEquals(hex(payload), hex(segment.encode()), "written again");
    read.put("segment", u64(segment.id())).put("size", u64(segment.size()));
  }

  private static void error(ObjectNode read, ByteBuffer payload, String name) {
    DissociatedException error = ShmFrame.parseError(payload);
    if (!name.endsWith("-of-unknown-code") && !name.endsWith("-not-utf-8")) {
      assertEquals(hex(payload), hex(ShmFrame.encodeError(error)), "written again");
    }
    read.put("code", error.code().name()).put("message", error.getMessage());
  }

  private static void ring(ObjectNode read, ByteBuffer payload) {
    if (payload.hasRemaining()) { // otherwise a client asks
      ShmFrame.RingNotice ring = ShmFrame.RingNotice.parse(payload);
      assertEquals(hex(payload), hex(ring.encode()), "written again");
      read.put("capacity", u64(ring.capacity()));
    }
  }

  private static void summary(ObjectNode read, ByteBuffer payload) {
    StreamSummary summary = ShmFrame.parseSummary(payload);
    assertEquals(hex(payload), hex(ShmFrame.encodeSummary(summary)), "written again");
    read.put("batches", u64(summary.batches()))
        .put("body_bytes", u64(summary.bodyBytes()))
        .put("copied_bytes", u64(summary.copiedBytes()));
  }
}
