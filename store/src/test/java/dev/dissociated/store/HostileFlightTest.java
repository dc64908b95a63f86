package dev.dissociated.store;

import static dev.dissociated.store.StoreFixture.await;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCallStreamObserver;
import io.grpc.stub.StreamObserver;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.arrow.flight.impl.Flight;
import org.apache.arrow.flight.impl.Flight.FlightData;
import org.apache.arrow.flight.impl.FlightServiceGrpc;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** DoPuts by somebody who writes the messages himself. Whatever they are, nothing half is left. */
class HostileFlightTest {
  private static final int PREFIX = 8;
  private static final Schema NUMBERS =
      new Schema(List.of(new Field("n", FieldType.notNullable(new ArrowType.Int(64, true)), null)));
  private static final Schema TEXTS =
      new Schema(List.of(new Field("t", FieldType.nullable(new ArrowType.Utf8()), null)));

  private FlightFixture fixture;
  private ManagedChannel channel;
  private StoreClient local;

  @BeforeEach
  void open() throws Exception {
    fixture = new FlightFixture(true);
    channel = NettyChannelBuilder.forAddress("127.0.0.1", fixture.port()).usePlaintext().build();
    local = fixture.local.client();
  }

  @AfterEach
  void close() throws Exception {
    await("all calls to end", () -> local.usage().clients().size() == 1);
    assertEquals(0, local.usage().used());
    local.close();
    channel.shutdownNow();
    assertTrue(channel.awaitTermination(60, TimeUnit.SECONDS));
    fixture.close();
  }

  // ---- messages

  private static Flight.FlightDescriptor path(String... elements) {
    return Flight.FlightDescriptor.newBuilder()
        .setType(Flight.FlightDescriptor.DescriptorType.PATH)
        .addAllPath(List.of(elements))
        .build();
  }

  private static Flight.FlightDescriptor command(String text) {
    return Flight.FlightDescriptor.newBuilder()
        .setType(Flight.FlightDescriptor.DescriptorType.CMD)
        .setCmd(ByteString.copyFromUtf8(text))
        .build();
  }

  private static FlightData message(ByteBuffer encapsulated, byte[] body) {
    ByteBuffer header = encapsulated.slice(PREFIX, encapsulated.remaining() - PREFIX);
    return FlightData.newBuilder()
        .setDataHeader(ByteString.copyFrom(header))
        .setDataBody(ByteString.copyFrom(body))
        .build();
  }

  private static FlightData schema(Schema schema, Flight.FlightDescriptor descriptor) {
    FlightData.Builder first = message(BatchMetadata.schema(schema), new byte[0]).toBuilder();
    return descriptor == null ? first.build() : first.setFlightDescriptor(descriptor).build();
  }

  private static FlightData numbers(long rows, long nodeRows, long offset, long length, int body) {
    return message(
        BatchMetadata.batch(
            rows,
            List.of(new ArrowFieldNode(nodeRows, 0)),
            List.of(new BatchMetadata.Range(0, 0), new BatchMetadata.Range(offset, length)),
            List.of(),
            body),
        new byte[body]);
  }

  private static FlightData texts(int rows, int... offsets) {
    ByteBuffer body = ByteBuffer.allocate(64).order(java.nio.ByteOrder.LITTLE_ENDIAN);
    for (int offset : offsets) {
      body.putInt(offset);
    }
    return message(
        BatchMetadata.batch(
            rows,
            List.of(new ArrowFieldNode(rows, 0)),
            List.of(
                new BatchMetadata.Range(0, 0),
                new BatchMetadata.Range(0, 4L * offsets.length),
                new BatchMetadata.Range(32, 32)),
            List.of(),
            64),
        body.array());
  }

  // ---- calls

  private final class Put implements StreamObserver<Flight.PutResult> {
    private final CompletableFuture<Void> end = new CompletableFuture<>();
    private final ClientCallStreamObserver<FlightData> out;

    Put() {
      out = (ClientCallStreamObserver<FlightData>) FlightServiceGrpc.newStub(channel).doPut(this);
    }

    @Override
    public void onNext(Flight.PutResult result) {
      // told by the end
    }

    @Override
    public void onError(Throwable failure) {
      end.completeExceptionally(failure);
    }

    @Override
    public void onCompleted() {
      end.complete(null);
    }

    /** The status that the server ends the call with. */
    Status status() throws Exception {
      try {
        end.get(120, TimeUnit.SECONDS);
        return Status.OK;
      } catch (ExecutionException e) {
        return ((StatusRuntimeException) e.getCause()).getStatus();
      }
    }
  }

  private Status put(FlightData... messages) throws Exception {
    Put put = new Put();
    for (FlightData message : messages) {
      put.out.onNext(message);
    }
    put.out.onCompleted();
    return put.status();
  }

  private void refused(Status.Code code, String hint, FlightData... messages) throws Exception {
    Status status = put(messages);
    assertEquals(code, status.getCode(), status::toString);
    assertTrue(String.valueOf(status.getDescription()).contains(hint), status::toString);
    assertEquals(List.of(), local.list(""));
  }

  // ---- tests

  /** The messages of this test are right where they are meant to be. */
  @Test
  void shouldPutWhatIsRight() throws Exception {
    Status put = put(schema(NUMBERS, path("n")), numbers(2, 2, 0, 16, 16), numbers(1, 1, 0, 8, 8));
    assertTrue(put.isOk(), put::toString);
    put = put(schema(TEXTS, command("{\"name\":\"t\",\"pin\":true}")), texts(2, 0, 3, 32));
    assertTrue(put.isOk(), put::toString);
    try (StoreObject object = local.get("n")) {
      assertEquals("n\n0\n0\nn\n0\n", FlightFixture.text(object.reader()));
    }
    assertTrue(local.stat("t").orElseThrow().pinned());
    local.delete("n");
    local.delete("t");
  }

  @Test
  void shouldRefuseStreamsThatAreNone() throws Exception {
    FlightData batch = numbers(1, 1, 0, 8, 8);
    Status.Code invalid = Status.Code.INVALID_ARGUMENT;
    refused(invalid, "no schema came");
    refused(
        invalid, "no schema came", FlightData.newBuilder().setFlightDescriptor(path("x")).build());
    refused(
        invalid,
        "no schema came",
        FlightData.newBuilder()
            .setFlightDescriptor(path("x"))
            .setAppMetadata(ByteString.copyFromUtf8("nothing"))
            .build());
    refused(invalid, "no schema before", batch);
    refused(
        invalid,
        "a second schema",
        schema(NUMBERS, path("x")),
        batch,
        schema(TEXTS, null),
        texts(2, 0, 3, 32));
    refused(invalid, "a second schema", schema(NUMBERS, path("x")), schema(NUMBERS, null), batch);
    refused(invalid, "no descriptor", schema(NUMBERS, null), batch);
  }

  @Test
  void shouldRefuseNamesAndOptionsThatAreNone() throws Exception {
    Status.Code invalid = Status.Code.INVALID_ARGUMENT;
    refused(invalid, "path of one element", schema(NUMBERS, path()));
    refused(invalid, "path of one element", schema(NUMBERS, path("a", "b")));
    for (String name : List.of("", "$x", "/x", "x/", "a\0b", "x".repeat(1025))) {
      refused(invalid, "name refused", schema(NUMBERS, path(name)));
    }
    refused(invalid, "not JSON", schema(NUMBERS, command("x")));
    refused(invalid, "not a JSON object", schema(NUMBERS, command("[1]")));
    refused(invalid, "key=name", schema(NUMBERS, command("{}")));
    refused(invalid, "key=more", schema(NUMBERS, command("{\"name\":\"x\",\"more\":1}")));
    refused(invalid, "key=ttl_ms", schema(NUMBERS, command("{\"name\":\"x\",\"ttl_ms\":-1}")));
    refused(invalid, "key=ttl_ms", schema(NUMBERS, command("{\"name\":\"x\",\"ttl_ms\":1e30}")));
    refused(invalid, "key=pin", schema(NUMBERS, command("{\"name\":\"x\",\"pin\":1}")));
    refused(
        invalid,
        "bytes come as one column",
        schema(NUMBERS, command("{\"name\":\"x\",\"type\":\"bytes\"}")));
    refused(
        invalid,
        "not one column of type",
        schema(NUMBERS, command("{\"name\":\"x\",\"type\":\"tensor\"}")));
    refused(
        Status.Code.UNIMPLEMENTED,
        "type=pickle",
        schema(NUMBERS, command("{\"name\":\"x\",\"type\":\"pickle\"}")));
  }

  @Test
  void shouldRefuseBodiesThatLie() throws Exception {
    List<FlightData> lies =
        List.of(
            numbers(3, 3, 0, 16, 16),
            numbers(2, 3, 0, 16, 16),
            numbers(3, 2, 0, 16, 16),
            numbers(2, 2, 8, 16, 16),
            numbers(2, 2, 0, 1 << 20, 16),
            numbers(2, 2, -8, 16, 16),
            numbers(2, 2, 0, -16, 16),
            numbers(-1, -1, 0, 16, 16),
            numbers(1L << 40, 2, 0, 16, 16));
    for (FlightData lie : lies) {
      Status status = put(schema(NUMBERS, path("x")), numbers(2, 2, 0, 16, 16), lie);
      assertFalse(status.isOk(), lie::toString);
      assertEquals(List.of(), local.list(""), lie::toString);
    }
    refused(Status.Code.INVALID_ARGUMENT, "offsets", schema(TEXTS, path("x")), texts(2, 0, 3, 33));
    refused(Status.Code.INVALID_ARGUMENT, "offsets", schema(TEXTS, path("x")), texts(2, 0, 9, 3));
    refused(Status.Code.INVALID_ARGUMENT, "", schema(TEXTS, path("x")), texts(2, 0, 3, -1));
    refused(Status.Code.INVALID_ARGUMENT, "", schema(TEXTS, path("x")), texts(9, 0, 3, 4));
  }

  @Test
  void shouldSurviveDamagedHeaders() throws Exception {
    fixture.flightForgetsBodies(); // of messages whose header it cannot read
    Random random = new Random(11);
    FlightData good = schema(NUMBERS, path("x"));
    FlightData batch = numbers(2, 2, 0, 16, 16);
    for (int i = 0; i < 150; i++) {
      boolean first = random.nextBoolean();
      byte[] header = (first ? good : batch).getDataHeader().toByteArray();
      for (int k = 0; k <= random.nextInt(3); k++) {
        header[random.nextInt(header.length)] = (byte) random.nextInt();
      }
      FlightData damaged =
          (first ? good : batch).toBuilder().setDataHeader(ByteString.copyFrom(header)).build();
      // Some damage is none; what is put can be read.
      Status status = put(first ? damaged : good, first ? batch : damaged);
      readIfPut(status);
    }
  }

  private void readIfPut(Status status) throws Exception {
    for (ObjectInfo object : local.list("")) {
      assertTrue(status.isOk(), status::toString);
      try (StoreObject got = local.get(object.name())) {
        FlightFixture.text(got.reader());
      }
      local.delete(object.name());
    }
  }

  @Test
  void shouldLeaveNothingOfPutsThatAreGivenUp() throws Exception {
    List<Put> puts = new ArrayList<>();
    for (int i = 0; i < 20; i++) {
      Put put = new Put();
      puts.add(put);
      put.out.onNext(schema(NUMBERS, path("x" + i)));
      for (int k = 0; k < i; k++) {
        put.out.onNext(numbers(10_000, 10_000, 0, 80_000, 80_000));
      }
    }
    await("the puts to begin", () -> local.usage().clients().size() > puts.size() / 2);
    for (Put put : puts) {
      put.out.cancel("given up", null);
    }
    for (Put put : puts) {
      assertEquals(Status.Code.CANCELLED, put.status().getCode());
    }
    await("their ends", () -> local.usage().clients().size() == 1);
    assertEquals(List.of(), local.list(""));
    // And one that closes the connection under the call.
    Put put = new Put();
    put.out.onNext(schema(NUMBERS, path("x")));
    put.out.onNext(numbers(2, 2, 0, 16, 16));
    channel.shutdownNow();
    await("its end", () -> local.usage().clients().size() == 1);
    assertEquals(List.of(), local.list(""));
  }

  @Test
  void shouldRefuseWhatCannotFitWhileItComes() throws Exception {
    FlightData mebibyte = numbers(1 << 17, 1 << 17, 0, 1 << 20, 1 << 20);
    Put put = new Put();
    put.out.onNext(schema(NUMBERS, path("x")));
    // Far more than the limit: it ends before all has been sent.
    for (int i = 0; i < 1000 && !put.end.isDone(); i++) {
      while (!put.out.isReady() && !put.end.isDone()) {
        Thread.sleep(1);
      }
      put.out.onNext(mebibyte);
    }
    assertTrue(put.end.isDone());
    Status status = put.status();
    assertEquals(Status.Code.RESOURCE_EXHAUSTED, status.getCode(), status::toString);
    assertTrue(status.getDescription().contains("no room, needs="), status::toString);
    assertEquals(List.of(), local.list(""));
  }

  @Test
  void shouldRefuseActionsThatMakeNoSense() throws Exception {
    var blocking = FlightServiceGrpc.newBlockingStub(channel);
    for (String type : List.of("list", "stat", "wait", "usage", "delete", "change")) {
      Stream.of("x", "[]", "{\"more\":1}", "{\"name\":7}", "\0", "{\"name\":\"$x\"} 1")
          .forEach(
              body -> {
                Flight.Action action =
                    Flight.Action.newBuilder()
                        .setType("store." + type)
                        .setBody(ByteString.copyFrom(body.getBytes(StandardCharsets.UTF_8)))
                        .build();
                Status status = Status.OK;
                try {
                  blocking.doAction(action).forEachRemaining(result -> {});
                } catch (StatusRuntimeException e) {
                  status = e.getStatus();
                }
                assertEquals(Status.Code.INVALID_ARGUMENT, status.getCode(), type + " " + body);
              });
    }
  }
}
