package dev.dissociated.ucx;

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
import java.util.List;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** The messages between our own peers against the shared vectors; needs no UCX. */
class ControlVectorsTest {
  @TestFactory
  List<DynamicTest> shouldReadControlMessages() {
    return Vectors.tests("ucx-control", ControlVectorsTest::control);
  }

  @TestFactory
  List<DynamicTest> shouldReadErrors() {
    return Vectors.tests("ucx-error", ControlVectorsTest::error);
  }

  private static ObjectNode control(JsonNode vector) {
    ByteBuffer in = Vectors.bytes(vector);
    Control.Kind kind = Control.kind(in);
    ObjectNode read = object().put("message", kind.name());
    ByteBuffer again =
        switch (kind) {
          case HELLO -> {
            boolean reads = Control.parseHello(in);
            read.put("reads_memory", reads);
            yield Control.hello(reads);
          }
          case WELCOME -> {
            Control.Welcome welcome = Control.parseWelcome(in);
            read.put("heartbeat_ms", welcome.heartbeatMillis())
                .put("want_data", u64(welcome.wantData()))
                .put("free_data", u64(welcome.freeData()))
                .put("error_data", u64(welcome.errorData()))
                .put("arena", u64(welcome.arena()))
                .put("arena_length", u64(welcome.arenaLength()));
            yield Control.welcome(welcome);
          }
          case ERROR -> {
            DissociatedException error = Control.parseError(in);
            read.put("code", error.code().name()).put("text", error.getMessage());
            yield Control.error(error);
          }
          case SUMMARY -> {
            StreamSummary summary = Control.parseSummary(in);
            read.put("batches", u64(summary.batches()))
                .put("body_bytes", u64(summary.bodyBytes()))
                .put("copied_bytes", u64(summary.copiedBytes()));
            yield Control.summary(summary);
          }
          case HEARTBEAT, STOP, STOPPED, BYE -> Control.plain(kind);
        };
    assertEquals(hex(Vectors.bytes(vector)), hex(again), "written again");
    return read;
  }

  private static ObjectNode error(JsonNode vector) {
    DissociatedException error = Control.parseErrorData(Vectors.bytes(vector));
    if (!vector.get("name").asText().endsWith("of-unknown-code")) {
      assertEquals(hex(Vectors.bytes(vector)), hex(Control.errorData(error)), "written again");
    }
    return object().put("code", error.code().name()).put("text", error.getMessage());
  }
}
