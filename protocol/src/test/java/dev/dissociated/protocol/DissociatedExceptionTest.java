package dev.dissociated.protocol;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.wire.Vectors;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

final class DissociatedExceptionTest {
  private static final Pattern ROW = Pattern.compile("(?m)^\\| (\\d+) \\| ([A-Z_]+) \\|");

  @Test
  void shouldHaveTheNumbersOfTheFormatDescription() throws IOException {
    Map<Integer, String> described = new TreeMap<>();
    Matcher rows = ROW.matcher(Files.readString(Vectors.folder().resolveSibling("errors.md")));
    while (rows.find()) {
      described.put(Integer.valueOf(rows.group(1)), rows.group(2));
    }
    Map<Integer, String> actual = new TreeMap<>();
    Arrays.stream(Code.values()).forEach(code -> actual.put(code.number(), code.name()));

    assertEquals(described, actual);
  }

  @Test
  void shouldFindEveryCodeByItsNumber() {
    for (Code code : Code.values()) {
      assertSame(code, Code.of(code.number()));
    }
  }

  @Test
  void shouldTakeNumbersOfNewerPeersAsInternal() {
    assertSame(Code.INTERNAL, Code.of(0));
    assertSame(Code.INTERNAL, Code.of(-1));
    assertSame(Code.INTERNAL, Code.of(4711));
  }

  @Test
  void shouldKeepItsOwnKindWhenWrapped() {
    DissociatedException known = DissociatedException.violation("frame refused");

    assertSame(known, DissociatedException.wrap("stream failed", known));
  }

  @Test
  void shouldSayWhatFailedAndSinceWhatWhenItWrapsAnother() {
    IOException cause = new IOException("disk full");

    DissociatedException wrapped = DissociatedException.wrap("stream failed, name=x", cause);

    assertEquals("stream failed, name=x: disk full", wrapped.getMessage());
    assertSame(Code.INTERNAL, wrapped.code());
    assertSame(cause, wrapped.getCause());
    assertTrue(
        DissociatedException.wrap("stream failed", new IOException())
            .getMessage()
            .contains("IOException"),
        "a cause without a text is named");
  }
}
