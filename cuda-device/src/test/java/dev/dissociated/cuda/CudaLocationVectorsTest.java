package dev.dissociated.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.wire.Vectors;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;

/** Locations against the shared vectors; needs no CUDA. */
class CudaLocationVectorsTest {
  @TestFactory
  List<DynamicTest> shouldReadLocations() {
    return Vectors.tests("cuda-location", CudaLocationVectorsTest::location);
  }

  private static ObjectNode location(JsonNode vector) {
    DissociatedUri uri = DissociatedUri.parse(vector.get("text").asText());
    DissociatedUri carrier = CudaLocation.carrierOf(uri);
    Optional<CudaLocation> read = CudaLocation.of(uri);
    DissociatedUri bare = CudaLocation.over(carrier);
    if (read.isPresent()) {
      DissociatedUri again = read.get().addTo(bare);
      // The other alphabet is read, not written.
      DissociatedUri usual = uri.remoteHandle().map(uri::withRemoteHandle).orElse(uri);
      assertEquals(usual.parameters(), again.parameters(), "written again");
    } else {
      assertEquals(uri, bare, "written again");
    }
    HexFormat hex = HexFormat.of();
    return Vectors.object()
        .put("handle", read.flatMap(CudaLocation::handle).map(hex::formatHex).orElse(null))
        .put("exporter", read.map(CudaLocation::exporter).orElse(null))
        .put("device", read.map(r -> r.device().toString()).orElse(null))
        .put("event", read.flatMap(CudaLocation::event).map(hex::formatHex).orElse(null))
        .put("carrier", carrier.toString());
  }
}
