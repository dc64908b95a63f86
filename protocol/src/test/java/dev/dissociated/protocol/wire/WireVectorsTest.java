package dev.dissociated.protocol.wire;

import static dev.dissociated.protocol.wire.Vectors.bytes;
import static dev.dissociated.protocol.wire.Vectors.hex;
import static dev.dissociated.protocol.wire.Vectors.object;
import static dev.dissociated.protocol.wire.Vectors.u64;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.protocol.DissociatedUri;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

/** The codecs of this module against the shared vectors; see format-docs/vectors/README.md. */
final class WireVectorsTest {
  /** Which module's tests read which file. */
  private static final Map<String, String> READERS =
      Map.ofEntries(
          Map.entry("metadata-message", "protocol"),
          Map.entry("body-tag", "protocol"),
          Map.entry("buffer-list", "protocol"),
          Map.entry("free-list", "protocol"),
          Map.entry("uri", "protocol"),
          Map.entry("shm-frame", "transport-shm"),
          Map.entry("shm-ring", "transport-shm"),
          Map.entry("store", "store"),
          Map.entry("store-device", "store"),
          Map.entry("exchange-command", "flight-control"),
          Map.entry("exchange-metadata", "flight-control"),
          Map.entry("exchange-offer", "flight-control"),
          Map.entry("cuda-location", "cuda-device"),
          Map.entry("ucx-control", "transport-ucx"),
          Map.entry("ucx-error", "transport-ucx"));

  @TestFactory
  List<DynamicTest> shouldReadMetadataMessages() {
    return Vectors.tests(
        "metadata-message",
        vector -> {
          ByteBuffer input = bytes(vector);
          MetadataMessage message = MetadataMessage.parse(input);
          ByteBuffer prefix =
              message.endOfStream()
                  ? MetadataMessage.endOfStream(message.sequence())
                  : MetadataMessage.prefix(message.sequence());
          assertEquals(hex(input), hex(prefix) + hex(message.flatbuffer()), "written again");
          ObjectNode read =
              object().put("type", message.endOfStream() ? "end_of_stream" : "metadata");
          read.put("sequence", Integer.toUnsignedLong(message.sequence()));
          return message.endOfStream() ? read : read.put("flatbuffer", hex(message.flatbuffer()));
        });
  }

  @TestFactory
  List<DynamicTest> shouldReadBodyTags() {
    return Vectors.tests(
        "body-tag",
        vector -> {
          long tag = bytes(vector).order(ByteOrder.LITTLE_ENDIAN).getLong();
          int type = BodyTag.type(tag);
          assertEquals(tag, BodyTag.of(type, BodyTag.sequence(tag)), "written again");
          return object()
              .put("type", type)
              .put("sequence", Integer.toUnsignedLong(BodyTag.sequence(tag)))
              .put("tag", u64(tag));
        });
  }

  @TestFactory
  List<DynamicTest> shouldReadBufferLists() {
    return Vectors.tests(
        "buffer-list",
        vector -> {
          ByteBuffer input = bytes(vector);
          BufferList list = BufferList.parse(input);
          ByteBuffer again = ByteBuffer.allocate(BufferList.encodedLength(list.count()));
          list.encode(again);
          assertEquals(hex(input), hex(again.flip()), "written again");
          ObjectNode read = object().put("total", u64(list.total()));
          ArrayNode buffers = read.putArray("buffers");
          for (int i = 0; i < list.count(); i++) {
            buffers.addArray().add(u64(list.addresses()[i])).add(u64(list.lengths()[i]));
          }
          return read;
        });
  }

  @TestFactory
  List<DynamicTest> shouldReadFreeLists() {
    return Vectors.tests(
        "free-list",
        vector -> {
          ByteBuffer input = bytes(vector);
          long[] addresses = FreeList.parse(input);
          assertEquals(
              hex(input), hex(FreeList.encode(addresses, addresses.length)), "written again");
          ObjectNode read = object();
          ArrayNode list = read.putArray("addresses");
          for (long address : addresses) {
            list.add(u64(address));
          }
          return read;
        });
  }

  @TestFactory
  List<DynamicTest> shouldReadLocations() {
    return Vectors.tests(
        "uri",
        vector -> {
          DissociatedUri uri = DissociatedUri.parse(vector.get("text").asText());
          assertEquals(uri, DissociatedUri.parse(uri.toString()), "read again");
          ObjectNode read =
              object()
                  .put("scheme", uri.scheme())
                  .put("authority", uri.authority())
                  .put("path", uri.path())
                  .put("want_data", uri.wantData().map(Vectors::u64).orElse(null))
                  .put("free_data", uri.freeData().map(Vectors::u64).orElse(null))
                  .put(
                      "remote_handle",
                      uri.remoteHandle().map(HexFormat.of()::formatHex).orElse(null))
                  .put("canonical", uri.toString());
          JsonNode expected = vector.path("expect").path("parameters");
          if (!expected.isMissingNode()) {
            ObjectNode parameters = read.putObject("parameters");
            expected
                .fieldNames()
                .forEachRemaining(name -> parameters.put(name, uri.parameter(name).orElse(null)));
          }
          return read;
        });
  }

  @Test
  void shouldHaveAReaderForEveryFile() throws IOException {
    try (Stream<Path> files = Files.list(Vectors.folder())) {
      assertEquals(
          READERS.keySet(),
          files
              .map(file -> file.getFileName().toString())
              .filter(name -> name.endsWith(".json"))
              .map(name -> name.substring(0, name.length() - ".json".length()))
              .collect(Collectors.toSet()));
    }
  }

  @Test
  void shouldBeReadByTheTestsOfTheModuleThatClaimsThem() throws IOException {
    Path root = Vectors.folder().getParent().getParent();
    for (Map.Entry<String, String> claim : READERS.entrySet()) {
      Path tests = root.resolve(claim.getValue()).resolve("src/test/java");
      if (!Files.isDirectory(root.resolve(claim.getValue()))) {
        continue; // a checkout of some modules only
      }
      try (Stream<Path> sources = Files.walk(tests)) {
        assertTrue(
            sources
                .filter(file -> file.toString().endsWith(".java"))
                .filter(
                    file -> !file.endsWith(getClass().getSimpleName() + ".java") || reads(claim))
                .anyMatch(file -> mentions(file, '"' + claim.getKey() + '"')),
            () -> "no test reads the vectors: file=" + claim.getKey());
      }
    }
  }

  /** This class names every file in its table, which only counts for the ones it reads. */
  private static boolean reads(Map.Entry<String, String> claim) {
    return claim.getValue().equals("protocol");
  }

  private static boolean mentions(Path file, String text) {
    try {
      return Files.readString(file).contains(text);
    } catch (IOException e) {
      return false;
    }
  }
}
