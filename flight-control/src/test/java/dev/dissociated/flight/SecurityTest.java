package dev.dissociated.flight;

import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import io.grpc.Server;
import io.grpc.netty.NettyServerBuilder;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.nio.NioServerDomainSocketChannel;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.net.UnixDomainSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightConstants;
import org.apache.arrow.flight.FlightGrpcUtils;
import org.apache.arrow.flight.FlightServer;
import org.apache.arrow.flight.Location;
import org.apache.arrow.flight.ServerHeaderMiddleware;
import org.apache.arrow.flight.auth.ServerAuthHandler;
import org.apache.arrow.flight.auth2.BasicCallHeaderAuthenticator;
import org.apache.arrow.flight.auth2.GeneratedBearerTokenAuthenticator;
import org.apache.arrow.flight.grpc.ServerInterceptorAdapter;
import org.apache.arrow.flight.grpc.ServerInterceptorAdapter.KeyFactory;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Who the producer sees, over which kind of connection, is who it sees in a DoGet. */
class SecurityTest extends FlightTest {

  private TestProducer remembering(List<String> seen) {
    return new TestProducer()
        .stream(
            "flights",
            (context, out) -> {
              ServerHeaderMiddleware headers = context.getMiddleware(FlightConstants.HEADER_KEY);
              seen.add(context.peerIdentity() + " " + headers.headers().get("x-tenant"));
              batches(3, 10).run(context, out);
            });
  }

  static void authenticated(FlightServer.Builder builder) {
    BasicCallHeaderAuthenticator passwords =
        new BasicCallHeaderAuthenticator(
            (user, password) -> {
              if (!password.equals(user + "-secret")) {
                throw CallStatus.UNAUTHENTICATED.withDescription("wrong").toRuntimeException();
              }
              return () -> user;
            });
    builder.headerAuthenticator(new GeneratedBearerTokenAuthenticator(passwords));
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldShowTheProducerItsClientsIdentityAndHeaders(Preference preference) throws Exception {
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    DissociatedProducer producer = decorate(remembering(seen));
    FlightServer server = serve(producer, SecurityTest::authenticated);
    for (String user : List.of("ada", "grace")) {
      DissociatedClient client =
          closing(
              DissociatedClient.builder(allocator, uri(server))
                  .basicAuth(user, user + "-secret")
                  .header("x-tenant", user + "-tenant")
                  .build());
      try (DissociatedStream reader = client.open(NAME, preference)) {
        assertTrue(reader.loadNextBatch());
        if (!preference.via().equals(Preference.VIA_FLIGHT)) {
          assertEquals(user, producer.streams().get(0).identity());
        }
        assertTrue(reader.loadNextBatch());
        assertTrue(reader.loadNextBatch());
        assertFalse(reader.loadNextBatch());
      }
      eventually("the stream is gone", () -> producer.streams().isEmpty());
    }
    assertEquals(List.of("ada ada-tenant", "grace grace-tenant"), seen);
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldLetNobodyInWithoutCredentials(Preference preference) throws Exception {
    List<String> seen = Collections.synchronizedList(new ArrayList<>());
    DissociatedProducer producer = decorate(remembering(seen));
    FlightServer server = serve(producer, SecurityTest::authenticated);
    DissociatedClient nobody = connect(server);
    assertEquals(
        Code.UNAUTHENTICATED,
        assertThrows(DissociatedException.class, () -> nobody.open(NAME, preference)).code());
    DissociatedException wrong =
        assertThrows(
            DissociatedException.class,
            () ->
                DissociatedClient.builder(allocator, uri(server))
                    .basicAuth("ada", "guess")
                    .build());
    assertEquals(Code.UNAUTHENTICATED, wrong.code());
    DissociatedClient forged =
        closing(DissociatedClient.builder(allocator, uri(server)).bearerToken("made up").build());
    assertEquals(
        Code.UNAUTHENTICATED,
        assertThrows(DissociatedException.class, () -> forged.open(NAME, preference)).code());
    assertEquals(List.of(), seen);
  }

  @ParameterizedTest
  @MethodSource("ways")
  void shouldWorkOverTls(Preference preference, @TempDir Path folder) throws Exception {
    Path store = folder.resolve("store.p12");
    Process keytool =
        new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin", "keytool").toString(),
                "-genkeypair",
                "-alias",
                "server",
                "-keyalg",
                "EC",
                "-groupname",
                "secp256r1",
                "-dname",
                "CN=localhost",
                "-ext",
                "san=dns:localhost,ip:127.0.0.1",
                "-keystore",
                store.toString(),
                "-storepass",
                "changeit",
                "-storetype",
                "PKCS12")
            .redirectErrorStream(true)
            .redirectOutput(folder.resolve("keytool.log").toFile())
            .start();
    assertTrue(keytool.waitFor(60, TimeUnit.SECONDS) && keytool.exitValue() == 0);
    KeyStore keys = KeyStore.getInstance("PKCS12");
    try (InputStream in = Files.newInputStream(store)) {
      keys.load(in, "changeit".toCharArray());
    }
    String certificate = pem("CERTIFICATE", keys.getCertificate("server").getEncoded());
    String key = pem("PRIVATE KEY", keys.getKey("server", "changeit".toCharArray()).getEncoded());
    DissociatedProducer producer = decorate(flight(batches(3, 10)));
    FlightServer server =
        closing(
            FlightServer.builder(serverAllocator, Location.forGrpcTls("127.0.0.1", 0), producer)
                .useTls(stream(certificate), stream(key))
                .build()
                .start());
    DissociatedClient client =
        closing(
            DissociatedClient.builder(allocator, "grpc+tls://localhost:" + server.getPort())
                .tlsRoots(stream(certificate))
                .build());
    try (DissociatedStream reader = client.open(NAME, preference)) {
      assertEquals(expected(3, 10), read(reader));
      assertEquals(preference.via(), reader.report().via());
    }
  }

  private static InputStream stream(String text) {
    return new ByteArrayInputStream(text.getBytes(UTF_8));
  }

  private static String pem(String kind, byte[] bytes) {
    String body = Base64.getMimeEncoder(64, new byte[] {'\n'}).encodeToString(bytes);
    return "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n";
  }

  @ParameterizedTest
  @MethodSource("ways")
  // The event loop's class is deprecated in netty 4.2, and the only one in 4.1.
  @SuppressWarnings("deprecation")
  void shouldWorkOverAUnixSocket(Preference preference, @TempDir Path folder) throws Exception {
    Path socket = folder.resolve("flight.sock");
    DissociatedProducer producer = decorate(flight(batches(3, 10)));
    ExecutorService executor = Executors.newCachedThreadPool();
    EventLoopGroup loop = new NioEventLoopGroup(1);
    Server server =
        NettyServerBuilder.forAddress(UnixDomainSocketAddress.of(socket))
            .channelType(NioServerDomainSocketChannel.class)
            .bossEventLoopGroup(loop)
            .workerEventLoopGroup(loop)
            .executor(executor)
            .intercept(
                new ServerInterceptorAdapter(
                    List.of(
                        new KeyFactory<>(
                            FlightConstants.HEADER_KEY, new ServerHeaderMiddleware.Factory()))))
            .addService(
                FlightGrpcUtils.createFlightService(
                    serverAllocator, producer, ServerAuthHandler.NO_OP, executor))
            .build()
            .start();
    closing(
        () -> {
          server.shutdown();
          assertTrue(server.awaitTermination(60, TimeUnit.SECONDS));
          loop.shutdownGracefully(0, 1, TimeUnit.SECONDS);
          executor.shutdown();
        });
    DissociatedClient client =
        closing(DissociatedClient.connect(allocator, "grpc+unix://" + socket));
    try (DissociatedStream reader = client.open(NAME, preference)) {
      assertEquals(expected(3, 10), read(reader));
      assertEquals(preference.via(), reader.report().via());
    }
  }
}
