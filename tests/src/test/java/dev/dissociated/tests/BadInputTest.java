package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Everything that can be asked wrongly: one clear line, the right exit code, and the server goes
 * on.
 */
class BadInputTest {
  private static final Path FLIGHTS =
      Path.of(System.getProperty("project.root", "..")).resolve("examples/data/flights-200k.arrow");

  @TempDir Path folder;

  @Test
  void shouldSayThatANameIsUnknownAndGoOn() throws Exception {
    try (Served served = Served.java("flights=" + FLIGHTS)) {
      for (String target : new String[] {served.flight(), served.socket()}) {
        refused(1, "no such", "get", target, "nonsense");
        refused(1, "no such", "get", target, "");
      }
      refused(1, "no such", "get", served.flight(), "--ticket", "nonsense");
      served(served, "flights");
    }
  }

  @Test
  void shouldRefuseFilesThatAreMissingTruncatedOrNotArrow() throws Exception {
    byte[] whole = Files.readAllBytes(FLIGHTS);
    Path truncated = write("truncated.arrow", Arrays.copyOf(whole, whole.length / 2));
    Path headless = write("headless.arrow", Arrays.copyOfRange(whole, 100, whole.length));
    Path text = write("text.arrow", "this is not Arrow\n".repeat(100).getBytes());
    Path empty = write("empty.arrow", new byte[0]);
    Path zeros = write("zeros.arrow", new byte[4096]);
    refused(1, "no readable file", "serve", "gone=" + folder.resolve("gone.arrow"));
    try (Served served =
        Served.java(
            "truncated=" + truncated,
            "headless=" + headless,
            "text=" + text,
            "empty=" + empty,
            "zeros=" + zeros,
            "flights=" + FLIGHTS)) {
      for (String name : new String[] {"truncated", "headless", "text", "empty", "zeros"}) {
        refused(1, name, "get", served.flight(), name);
        refused(1, name, "get", served.socket(), name);
      }
      served(served, "flights");
    }
  }

  @Test
  void shouldSurviveFilesWithRandomDamage() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed=" + seed);
    Random random = new Random(seed);
    byte[] whole = Files.readAllBytes(FLIGHTS);
    String[] words = new String[21];
    for (int i = 0; i < 20; i++) {
      byte[] damaged = whole.clone();
      // Metadata lies at both ends; damage in the body would only be other values.
      for (int k = 0; k < 8; k++) {
        int at = random.nextInt(600);
        damaged[random.nextBoolean() ? at : damaged.length - 1 - at] = (byte) random.nextInt();
      }
      words[i] = "d" + i + "=" + write("d" + i + ".arrow", damaged);
    }
    words[20] = "flights=" + FLIGHTS;
    try (Served served = Served.java(words)) {
      for (int i = 0; i < 20; i++) {
        try (Program get = Program.java("get", served.socket(), "d" + i)) {
          assertTrue(get.exit() <= 1, "seed=" + seed + " file=" + i + ": " + get.errors());
        }
      }
      served(served, "flights");
    }
  }

  @Test
  void shouldSayWhatIsWrongWithASocketPath() throws Exception {
    refused(1, "no-such.sock", "get", folder.resolve("no-such.sock").toString(), "x");
    String tooLong = folder.resolve("s".repeat(200)).toString();
    refused(1, "longer than", "get", tooLong, "x");
    refused(1, "longer than", "serve", "--socket", tooLong, "flights=" + FLIGHTS);
    Path file = write("file.sock", new byte[] {1});
    refused(1, "file.sock", "get", file.toString(), "x");
    refused(1, "file.sock", "serve", "--socket", file.toString(), "flights=" + FLIGHTS);
    assertTrue(Files.exists(file), "a file that is not a socket must not be removed");
  }

  @Test
  void shouldNotTakeTheSocketOfALiveServerButThatOfADeadOne() throws Exception {
    String socket = folder.resolve("s.sock").toString();
    try (Served first = Served.java("--socket", socket, "flights=" + FLIGHTS)) {
      refused(1, "another server", "serve", "--socket", socket, "flights=" + FLIGHTS);
      served(first, "flights");
      first.program().kill();
    }
    assertTrue(Files.exists(Path.of(socket)));
    try (Served second = Served.java("--socket", socket, "flights=" + FLIGHTS)) {
      served(second, "flights");
    }
  }

  @Test
  void shouldSayThatAPortIsInUse() throws Exception {
    try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
      String uri = "grpc://127.0.0.1:" + taken.getLocalPort();
      refused(1, String.valueOf(taken.getLocalPort()), "serve", "--flight", uri, "f=" + FLIGHTS);
    }
  }

  @Test
  void shouldNotWaitLongForSomethingThatIsNotAServer() throws Exception {
    Path path = folder.resolve("silent.sock");
    try (ServerSocketChannel silent = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
      silent.bind(UnixDomainSocketAddress.of(path));
      Thread accept =
          new Thread(
              () -> {
                try (SocketChannel client = silent.accept()) {
                  client.read(ByteBuffer.allocate(1));
                } catch (IOException e) {
                  // the test is over
                }
              });
      accept.setDaemon(true);
      accept.start();
      refused(1, "silent.sock", "get", path.toString(), "x");
    }
    refused(1, "127.0.0.1:1", "get", "grpc://127.0.0.1:1", "flights");
  }

  @Test
  void shouldServeWithEveryKindOfHugePagesAndRefuseOthers() throws Exception {
    refused(1, "huge-pages", "serve", "--huge-pages", "big", "flights=" + FLIGHTS);
    for (String mode : new String[] {"off", "collapse", "hugetlb", "auto"}) {
      try (Served served = Served.java("--huge-pages", mode, "flights=" + FLIGHTS)) {
        served(served, "flights");
      }
    }
  }

  @Test
  void shouldTellBadUsageApart() throws Exception {
    refused(2, "Usage", "get");
    refused(2, "Usage", "serve", "--no-such-option");
    refused(2, "Usage", "serve", "no-equals-sign");
    refused(2, "Usage", "serve", "--memory", "lots", "f=" + FLIGHTS);
    refused(2, "Usage", "get", "grpc://127.0.0.1:1", "x", "--via", "pigeon");
    refused(2, "grpc", "get", "http://127.0.0.1:1", "x");
  }

  @Test
  void shouldKeepServingAfterGarbageOnTheSocket() throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed=" + seed);
    Random random = new Random(seed);
    try (Served served = Served.java("flights=" + FLIGHTS)) {
      for (int i = 0; i < 50; i++) {
        try (SocketChannel socket = SocketChannel.open(StandardProtocolFamily.UNIX)) {
          socket.connect(UnixDomainSocketAddress.of(served.socket()));
          byte[] garbage = new byte[random.nextInt(200)];
          random.nextBytes(garbage);
          socket.write(ByteBuffer.wrap(garbage));
        } catch (IOException e) {
          // refused in the middle of it: that is what is expected
        }
      }
      served(served, "flights");
      Await.noLeases(served);
    }
  }

  private Path write(String name, byte[] bytes) throws IOException {
    return Files.write(folder.resolve(name), bytes);
  }

  private static void served(Served served, String name) throws Exception {
    try (Program get = Program.java("get", served.flight(), name, "--json")) {
      JsonNode result = get.json();
      assertEquals("shm", result.get("via").asText());
      assertEquals(0, get.exit(), get.errors());
    }
  }

  /**
   * Runs a command that must fail with that code, saying so in one line that holds {@code hint}.
   */
  private static void refused(int code, String hint, String... words) throws Exception {
    try (Program program = Program.java(words)) {
      assertEquals(code, program.exit(), () -> Arrays.toString(words) + ": " + program.errors());
      String errors = program.errors();
      assertTrue(errors.contains(hint), () -> Arrays.toString(words) + " said: " + errors);
      if (code == 1) {
        assertEquals(1, errors.lines().count(), errors);
        assertFalse(errors.contains("\tat "), errors);
      }
    }
  }
}
