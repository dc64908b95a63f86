package dev.dissociated.protocol;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException.Code;
import java.util.Optional;
import net.jqwik.api.Example;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.AlphaChars;
import net.jqwik.api.constraints.NotEmpty;
import net.jqwik.api.constraints.StringLength;

class DissociatedUriTest {
  @Property
  void shouldReadBackWhatItWrites(
      @ForAll long wantData,
      @ForAll long freeData,
      @ForAll byte[] handle,
      @ForAll @AlphaChars @NotEmpty String name,
      @ForAll @StringLength(max = 20) String value) {
    String text = withoutLoneSurrogates(value);
    DissociatedUri uri =
        DissociatedUri.of("shm", "", "/run/" + name)
            .withWantData(wantData)
            .withFreeData(freeData)
            .withRemoteHandle(handle)
            .withParameter("x-" + name, text);

    DissociatedUri read = DissociatedUri.parse(uri.toString());

    assertEquals(uri, read);
    assertEquals(uri.hashCode(), read.hashCode());
    assertEquals(Optional.of(wantData), read.wantData());
    assertEquals(Optional.of(freeData), read.freeData());
    assertArrayEquals(handle, read.remoteHandle().orElseThrow());
    assertEquals(Optional.of(text), read.parameter("x-" + name));
    assertEquals("/run/" + name, read.path());
  }

  @Property
  void shouldReadBackAnyPath(@ForAll @StringLength(max = 20) String name) {
    String path = "/run/" + withoutLoneSurrogates(name);

    assertEquals(path, DissociatedUri.parse(DissociatedUri.of("shm", "", path).toString()).path());
  }

  @Property
  void shouldOnlyRefuseRandomText(@ForAll String text) {
    refusedAtMost(text);
    refusedAtMost("shm:///s?want_data=" + text);
    refusedAtMost("shm:///s?remote_handle=" + text);
    refusedAtMost("shm://" + text);
  }

  @Example
  void shouldKeepTheOthersWhenOneParameterChanges() {
    DissociatedUri uri = DissociatedUri.parse("shm:///s?want_data=1&host=a&free_data=2");

    DissociatedUri changed = uri.withParameter("host", "b");

    assertEquals("shm:///s?want_data=1&host=b&free_data=2", changed.toString());
    assertEquals(Optional.of("a"), uri.parameter("host"), "the first one stays as it was");
    assertNotEquals(uri, changed);
  }

  @Example
  void shouldSayWhatIsWrongAndWhere() {
    DissociatedException refusal =
        assertThrows(
            DissociatedException.class, () -> DissociatedUri.parse("shm:///s?want_data=one"));

    assertEquals(Code.INVALID_ARGUMENT, refusal.code());
    assertTrue(refusal.getMessage().contains("want_data"), refusal.getMessage());
    assertTrue(refusal.getMessage().contains("uri=shm:///s?want_data=one"), refusal.getMessage());
  }

  private static void refusedAtMost(String text) {
    try {
      DissociatedUri uri = DissociatedUri.parse(text);
      assertEquals(uri, DissociatedUri.parse(uri.toString()));
    } catch (DissociatedException refusal) {
      assertEquals(Code.INVALID_ARGUMENT, refusal.code());
    }
  }

  /** Half a surrogate pair is no text and has no UTF-8 form. */
  private static String withoutLoneSurrogates(String text) {
    return text.codePoints()
        .filter(point -> point < Character.MIN_SURROGATE || point > Character.MAX_SURROGATE)
        .collect(StringBuilder::new, StringBuilder::appendCodePoint, StringBuilder::append)
        .toString();
  }
}
