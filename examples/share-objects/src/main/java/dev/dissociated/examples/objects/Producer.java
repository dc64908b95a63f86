package dev.dissociated.examples.objects;

import dev.dissociated.protocol.transport.ListenOptions;
import dev.dissociated.store.PutOptions;
import dev.dissociated.store.Store;
import dev.dissociated.store.StoreClient;
import dev.dissociated.store.StoreOptions;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.Float8Vector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** Keeps a store in this JVM and puts a table into it. */
public final class Producer {
  private static final int ROWS = 1_000_000;
  private static final long MEMORY = 256L << 20;

  private Producer() {}

  /** Keeps the store until it is stopped. */
  public static void main(String[] args) throws Exception {
    try (BufferAllocator allocator = new RootAllocator();
        Store store = Store.listen(ListenOptions.anywhere(MEMORY), StoreOptions.DEFAULT)) {
      Runtime.getRuntime().addShutdownHook(new Thread(store::close));
      try (StoreClient client = StoreClient.connect(allocator, store.socket())) {
        put(client);
      }
      System.out.println("store at " + store.socket());
      String told = "";
      while (true) {
        String now = "on lease: " + store.usage().leases();
        if (!now.equals(told)) {
          System.out.println(now);
          told = now;
        }
        Thread.sleep(20);
      }
    }
  }

  /** Fills a table where the store will keep it: nothing is copied when it is sealed. */
  private static void put(StoreClient client) {
    Field celsius =
        Field.notNullable("celsius", new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE));
    try (var builder = client.create("temperatures", 2L * ROWS * Double.BYTES, PutOptions.DEFAULT);
        var root = VectorSchemaRoot.create(new Schema(List.of(celsius)), builder.allocator())) {
      Float8Vector vector = (Float8Vector) root.getVector(0);
      vector.allocateNew(ROWS);
      for (int i = 0; i < ROWS; i++) {
        vector.set(i, i % 20);
      }
      root.setRowCount(ROWS);
      builder.add(root);
      builder.sealTable();
    }
  }
}
