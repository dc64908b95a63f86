package dev.dissociated.flight;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.wire.MetadataMessage;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import org.junit.jupiter.api.function.ThrowingConsumer;

/** The exchange's codecs against the vectors that all languages share. */
class ExchangeVectorsTest {
  private static final HexFormat HEX = HexFormat.of();

  private static Stream<DynamicTest> vectors(String kind, ThrowingConsumer<JsonNode> check)
      throws IOException {
    Path file = Path.of(System.getProperty("project.root"), "format-docs/vectors", kind + ".json");
    JsonNode all = new ObjectMapper().readTree(file.toFile());
    return StreamSupport.stream(all.spliterator(), false)
        .map(v -> DynamicTest.dynamicTest(v.get("name").asText(), () -> check.accept(v)));
  }

  private static byte[] bytes(JsonNode vector) {
    return HEX.parseHex(vector.get("hex").asText());
  }

  private static boolean refused(JsonNode vector, Runnable read) {
    if (!vector.has("error")) {
      return false;
    }
    DissociatedException refused = assertThrows(DissociatedException.class, read::run);
    assertEquals(vector.get("error").asText(), refused.code().name());
    return true;
  }

  @TestFactory
  Stream<DynamicTest> shouldReadAndWriteCommands() throws IOException {
    return vectors(
        "exchange-command",
        vector -> {
          if (refused(vector, () -> ExchangeCommand.parse(bytes(vector)))) {
            return;
          }
          Optional<ExchangeCommand> command = ExchangeCommand.parse(bytes(vector));
          JsonNode expect = vector.get("expect");
          if (expect.get("mode").isNull()) {
            assertEquals(Optional.empty(), command);
            return;
          }
          assertEquals(expect.get("mode").asText(), command.orElseThrow().mode().toString());
          assertArrayEquals(
              HEX.parseHex(expect.get("ticket").asText()), command.orElseThrow().ticket());
          assertArrayEquals(bytes(vector), command.orElseThrow().encode());
        });
  }

  @TestFactory
  Stream<DynamicTest> shouldReadAndWriteOffers() throws IOException {
    return vectors(
        "exchange-offer",
        vector -> {
          if (refused(vector, () -> ExchangeOffer.parse(bytes(vector)))) {
            return;
          }
          ExchangeOffer offer = ExchangeOffer.parse(bytes(vector));
          assertArrayEquals(
              HEX.parseHex(vector.get("expect").get("token").asText()), offer.token());
          List<String> locations = new ArrayList<>();
          vector.get("expect").get("locations").forEach(l -> locations.add(l.asText()));
          assertEquals(locations, offer.locations());
          assertArrayEquals(bytes(vector), offer.encode());
        });
  }

  @TestFactory
  Stream<DynamicTest> shouldReadAndWriteMetadata() throws IOException {
    return vectors(
        "exchange-metadata",
        vector -> {
          ByteBuffer message = ByteBuffer.wrap(bytes(vector));
          if (refused(vector, () -> ExchangeMetadata.split(message))) {
            return;
          }
          List<ByteBuffer> messages = ExchangeMetadata.split(message);
          JsonNode expected = vector.get("expect").get("messages");
          assertEquals(expected.size(), messages.size());
          ByteArrayOutputStream written = new ByteArrayOutputStream();
          for (int i = 0; i < messages.size(); i++) {
            MetadataMessage parsed = MetadataMessage.parse(messages.get(i));
            boolean end = expected.get(i).get("type").asText().equals("end_of_stream");
            assertEquals(end, parsed.endOfStream());
            assertEquals(expected.get(i).get("sequence").asLong(), parsed.sequence());
            if (!end) {
              byte[] flatbuffer = HEX.parseHex(expected.get(i).get("flatbuffer").asText());
              assertEquals(ByteBuffer.wrap(flatbuffer), parsed.flatbuffer());
            }
            ExchangeMetadata.append(written, messages.get(i));
          }
          if (!vector.get("name").asText().endsWith("-ignored") && !messages.isEmpty()) {
            assertArrayEquals(bytes(vector), written.toByteArray());
          }
        });
  }
}
