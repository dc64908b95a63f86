package dev.dissociated.tests;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.store.ObjectType;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.Store;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreObject;
import dev.dissociated.store.StoreOptions;
import dev.dissociated.store.StoreReference;
import dev.dissociated.store.Tensor;
import java.time.Duration;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.junit.jupiter.api.Test;

/** References that go from a Java process to a Python one, and back. */
class StoreReferencesPythonTest {
  private static final String SCRIPT =
      """
      import sys
      import numpy as np
      import dissociated.store
      from dissociated import Code, DissociatedError

      store = dissociated.store.connect(sys.argv[1])
      token = [int(sys.argv[2][at:at + 16], 16) for at in (0, 16)]
      buffers, lease = store.take(*token)
      assert np.frombuffer(buffers[-1], "f8", 4).tolist() == [0, 0.5, 1, 1.5]
      try:
          store.take(*token)
          raise AssertionError("taken twice")
      except DissociatedError as e:
          assert e.code is Code.NOT_FOUND
      store.put("mine", b"from Python" * 10_000)
      claimed = store.lease("mine")[2].claim(60)
      store.delete("mine")
      print("%016x%016x" % claimed, flush=True)
      sys.stdin.read()
      """;

  @Test
  void shouldPassObjectsBetweenLanguages() throws Exception {
    assumeTrue(Program.hasPython(), "no Python: set DISSOCIATED_PYTHON");
    try (BufferAllocator allocator = new RootAllocator();
        Store daemon = Store.listen(ListenOptions.anywhere(64 << 20), StoreOptions.DEFAULT);
        StoreClient client = StoreClient.connect(allocator, daemon.socket())) {
      ArrowType f64 = new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);
      try (Tensor tensor = new Tensor(f64, new long[] {2, 2}, allocator.buffer(32))) {
        for (int i = 0; i < 4; i++) {
          tensor.data().setDouble(8L * i, i / 2.0);
        }
        client.putTensor("x", tensor, PutOptions.DEFAULT);
      }
      StoreReference reference;
      try (StoreObject object = client.get("x")) {
        reference = object.claim(Duration.ofMinutes(1));
      }
      client.delete("x");
      try (Program python =
          Program.pythonListening(SCRIPT, daemon.socket(), reference.toString())) {
        StoreReference back = StoreReference.parse(python.line());
        try (StoreObject object = client.take(back)) {
          assertEquals(ObjectType.BYTES, object.type());
          assertEquals("from Python".repeat(10_000), new String(object.toByteArray()));
        }
      }
      Await.until("the leases", () -> daemon.usage().leases() == 0);
      assertEquals(0, daemon.usage().objects());
    }
  }
}
