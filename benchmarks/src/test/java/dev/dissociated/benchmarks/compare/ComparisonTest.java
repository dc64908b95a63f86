package dev.dissociated.benchmarks.compare;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import dev.dissociated.benchmarks.compare.Case.Unit;
import dev.dissociated.benchmarks.compare.Comparison.Plan;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class ComparisonTest {
  @TempDir Path folder;

  @Test
  void shouldMeasureWithRealProcessesAndReport() throws Exception {
    List<String> progress = new ArrayList<>();
    Comparison comparison =
        new Comparison(new Plan(true, 1, Duration.ofMinutes(1), "leases"), progress::add);
    Report report = comparison.run(folder);
    report.write(folder);
    JsonNode results = new ObjectMapper().readTree(folder.resolve("results.json").toFile());
    for (JsonNode figure : results.path("figures")) {
      assertFalse(figure.has("failed"), figure.toString());
      assertTrue(figure.path("median").asDouble() > 0, figure.toString());
    }
    assertEquals(4, results.path("figures").size(), "two references and two numbers of leases");
    assertTrue(Files.readString(folder.resolve("results.md")).contains("100,000 leases"));
  }

  @Test
  void shouldTakeMedianAndRatioToTheReferenceOfTheSameMoment() throws Exception {
    List<Double> rates = new ArrayList<>(List.of(9.0, 1.0, 2.0));
    Case measured = new Case("group", "row", Unit.GIGABYTES, () -> Map.of("GB/s", rates.remove(0)));
    measured.run(1, false);
    measured.run(2, true);
    measured.run(4, true);
    Column column = measured.columns.get("GB/s");
    assertEquals(1.5, column.median());
    assertEquals(0.5, column.ratio());
    assertEquals(1 / 1.5, column.spread(), 1e-9);
  }

  @Test
  void shouldGoOnWithoutACaseThatFails() throws Exception {
    int[] runs = new int[1];
    Case failing =
        new Case(
            "group",
            "row",
            Unit.GIGABYTES,
            () -> {
              runs[0]++;
              throw new IllegalStateException("no such peer");
            });
    failing.run(1, true);
    failing.run(1, true);
    assertEquals(1, runs[0]);
    assertEquals("no such peer", failing.failure());
  }
}
