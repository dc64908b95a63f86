package dev.dissociated.shm;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.DissociatedUri;
import dev.dissociated.protocol.transport.Connection;
import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.protocol.transport.Listener;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Map;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SocketFileTest {
  @TempDir Path folder;
  private Leaks before;

  @BeforeEach
  void countBefore() {
    before = Leaks.now();
  }

  @AfterEach
  void shouldLeakNothing() {
    before.assertRestored();
  }

  private static Listener listen(Path path, Map<String, String> properties) {
    String address = path == null ? "" : path.toString();
    return new ShmTransport()
        .listen(new ListenOptions(address, 1 << 20, properties), connection -> new Recorder());
  }

  private static DissociatedException refused(Path path, Map<String, String> properties) {
    DissociatedException why =
        assertThrows(DissociatedException.class, () -> listen(path, properties).close());
    assertFalse(why.getMessage().contains("\n"));
    return why;
  }

  private static String mode(Path path) throws Exception {
    return PosixFilePermissions.toString(Files.getPosixFilePermissions(path));
  }

  @Test
  void shouldPickAPrivateSocketAndRemoveIt() throws Exception {
    Path path;
    try (Listener listener = listen(null, Map.of())) {
      path = Path.of(listener.location().path());
      assertEquals("rw-------", mode(path));
      assertEquals("rwx------", mode(path.getParent()));
      new ShmTransport().connect(listener.location()).close();
    }
    assertFalse(Files.exists(path));
  }

  @Test
  void shouldUseTheGivenPathModeAndGroup() throws Exception {
    Path path = folder.resolve("a b%ü.sock");
    String group =
        Files.readAttributes(folder, java.nio.file.attribute.PosixFileAttributes.class)
            .group()
            .getName();
    try (Listener listener = listen(path, Map.of("socket-mode", "0660", "socket-group", group))) {
      assertEquals("rw-rw----", mode(path));
      DissociatedUri read = DissociatedUri.parse(listener.location().toString());
      new ShmTransport().connect(read).close();
      new ShmTransport().connect(DissociatedUri.of("shm", "", path.toString())).close();
    }
    assertFalse(Files.exists(path));
    assertTrue(
        refused(path, Map.of("socket-group", "no such group")).getMessage().contains("group"));
    assertFalse(Files.exists(path));
  }

  @Test
  void shouldReplaceAStaleSocketButNothingElse() throws Exception {
    Path path = folder.resolve("s.sock");
    int dead = Linux.socket();
    assertEquals(0, Linux.bind(dead, path.toString()));
    Linux.close(dead);
    assertTrue(Files.exists(path));
    try (Listener listener = listen(path, Map.of())) {
      DissociatedException why = refused(path, Map.of());
      assertTrue(why.getMessage().contains("another server is listening"), why.getMessage());
      new ShmTransport().connect(listener.location()).close();
    }
    Files.writeString(path, "precious");
    DissociatedException why = refused(path, Map.of());
    assertTrue(why.getMessage().contains("not our socket"), why.getMessage());
    assertEquals("precious", Files.readString(path));
  }

  @Test
  void shouldLeaveASocketAloneThatTookItsPlace() throws Exception {
    Path path = folder.resolve("s.sock");
    Listener first = listen(path, Map.of());
    Files.delete(path);
    try (Listener second = listen(path, Map.of())) {
      first.close();
      assertTrue(Files.exists(path));
      new ShmTransport().connect(second.location()).close();
    }
  }

  @Test
  void shouldSayClearlyWhatIsWrongWithAPath() {
    DissociatedException longPath = refused(folder.resolve("x".repeat(200)), Map.of());
    assertEquals(Code.INVALID_ARGUMENT, longPath.code());
    assertTrue(longPath.getMessage().contains("limit=107"), longPath.getMessage());
    assertEquals(Code.NOT_FOUND, refused(folder.resolve("no/s.sock"), Map.of()).code());
    for (var bad :
        Map.of(
                "socket-mode",
                "rw",
                "allow-uid",
                "me",
                "heartbeat-ms",
                "0",
                "warm",
                "-1",
                "no-such",
                "1")
            .entrySet()) {
      DissociatedException why = refused(folder.resolve("s"), Map.of(bad.getKey(), bad.getValue()));
      assertEquals(Code.INVALID_ARGUMENT, why.code());
      assertTrue(why.getMessage().contains(bad.getKey()), why.getMessage());
    }
  }

  private static DissociatedException notConnected(String uri) {
    return assertThrows(
        DissociatedException.class, () -> new ShmTransport().connect(DissociatedUri.parse(uri)));
  }

  @Test
  void shouldSayClearlyWhyItDoesNotConnect() {
    assertEquals(Code.UNAVAILABLE, notConnected("shm:///no/such.sock").code());
    assertTrue(notConnected("shm:///no/such.sock").getMessage().contains("no such socket"));
    assertEquals(Code.INVALID_ARGUMENT, notConnected("shm:///" + "x".repeat(200)).code());
    assertEquals(Code.INVALID_ARGUMENT, notConnected("ucx://host:1/a").code());
    assertEquals(Code.INVALID_ARGUMENT, notConnected("shm://host/a").code());
    Path path = folder.resolve("dead.sock");
    int dead = Linux.socket();
    Linux.bind(dead, path.toString());
    Linux.close(dead);
    assertTrue(notConnected("shm://" + path).getMessage().contains("no server listens"));
  }

  @Test
  void shouldConnectOnlyToTheServerThatAdvertised() {
    try (Listener listener = listen(null, Map.of())) {
      DissociatedUri right = listener.location();
      for (DissociatedUri wrong :
          new DissociatedUri[] {
            right.withParameter("host", "00".repeat(16)),
            right.withRemoteHandle(new byte[16]),
            right.withWantData(99),
            right.withFreeData(99)
          }) {
        DissociatedException why =
            assertThrows(DissociatedException.class, () -> new ShmTransport().connect(wrong));
        assertEquals(Code.UNAVAILABLE, why.code());
        assertTrue(why.getMessage().contains("not the server that advertised"));
      }
      try (Connection connection = new ShmTransport().connect(right)) {
        assertEquals(right.wantData().orElseThrow(), connection.wantDataTag());
        assertEquals(right.freeData(), connection.freeDataTag());
      }
    }
  }

  @Test
  void shouldAdvertiseAnotherPathWhenTold() {
    try (Listener listener = listen(null, Map.of("advertise-socket", "/mnt/x.sock"))) {
      assertEquals("/mnt/x.sock", listener.location().path());
    }
  }
}
