package dev.dissociated.store;

import dev.dissociated.protocol.testing.AllTypes;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.Channels;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.VectorUnloader;
import org.apache.arrow.vector.compression.CompressionCodec;
import org.apache.arrow.vector.compression.CompressionUtil.CodecType;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.ipc.message.ArrowRecordBatch;
import org.apache.arrow.vector.ipc.message.IpcOption;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;

/** Tables that are damaged or made to do harm: one small lie each. Stateless. */
public final class DamagedTables {
  private static final int ROWS = 50;
  private static final long SEED = 7;
  private static final int PREFIX = 8;
  private static final long MARK = 0x5A5A5A5A;
  private static final long[] LIES = {
    -1, Long.MIN_VALUE, Long.MAX_VALUE, Long.MAX_VALUE - 7, 1L << 40, Integer.MAX_VALUE, 1L << 31
  };

  private DamagedTables() {}

  /** The messages of a stream, each without its body, and their bodies. */
  private record Parts(List<byte[]> messages, List<byte[]> bodies) {
    static Parts of(byte[] stream) {
      Parts parts = new Parts(new ArrayList<>(), new ArrayList<>());
      ByteBuffer in = ByteBuffer.wrap(stream).order(ByteOrder.LITTLE_ENDIAN);
      while (in.getInt(in.position() + 4) > 0) {
        int length = PREFIX + in.getInt(in.position() + 4);
        parts.messages.add(Arrays.copyOfRange(stream, in.position(), in.position() + length));
        ByteBuffer flatbuffer = in.slice(in.position() + PREFIX, length - PREFIX);
        int body = (int) Message.getRootAsMessage(flatbuffer).bodyLength();
        in.position(in.position() + length);
        parts.bodies.add(Arrays.copyOfRange(stream, in.position(), in.position() + body));
        in.position(in.position() + body);
      }
      return parts;
    }

    byte[] metadata() {
      ByteArrayOutputStream out = new ByteArrayOutputStream();
      messages.forEach(out::writeBytes);
      return out.toByteArray();
    }

    RawObject table(String name) {
      List<byte[]> all = new ArrayList<>(List.of(metadata()));
      bodies.stream().filter(body -> body.length > 0).forEach(all::add);
      return new RawObject(name, ObjectType.TABLE, all);
    }
  }

  /** Tables that are whole, to see that others are refused for what is wrong with them. */
  public static List<RawObject> whole() {
    List<RawObject> tables = new ArrayList<>();
    try (BufferAllocator allocator = new RootAllocator()) {
      for (Field field : AllTypes.fields()) {
        tables.add(written(allocator, field).table("whole/" + field.getName()));
      }
      tables.add(encoded(allocator).table("whole/encoded"));
      for (CodecType codec : List.of(CodecType.LZ4_FRAME, CodecType.ZSTD)) {
        tables.add(compressed(allocator, codec).table("whole/" + codec));
      }
    }
    return tables;
  }

  /** All lies. */
  public static List<RawObject> damaged() {
    List<RawObject> tables = new ArrayList<>();
    try (BufferAllocator allocator = new RootAllocator()) {
      garbage(tables);
      for (Field field : AllTypes.fields()) {
        Parts parts = written(allocator, field);
        String name = "column/" + field.getName() + "/";
        lyingBodies(tables, name, parts);
        try (VectorSchemaRoot root = AllTypes.root(allocator, List.of(field), ROWS, SEED)) {
          lyingMetadata(tables, name, root, parts.bodies().get(1));
        }
      }
      messages(tables, encoded(allocator));
      lyingBodies(tables, "encoded/", encoded(allocator));
      for (CodecType codec : List.of(CodecType.LZ4_FRAME, CodecType.ZSTD)) {
        compressedLies(tables, codec + "/", compressed(allocator, codec));
      }
    }
    return tables;
  }

  /** Tables with bytes of their metadata or their bodies changed at random. */
  public static List<RawObject> flipped(long seed, int count) {
    Random random = new Random(seed);
    List<RawObject> tables = new ArrayList<>();
    List<RawObject> whole = whole();
    for (int i = 0; i < count; i++) {
      RawObject table = whole.get(random.nextInt(whole.size()));
      List<byte[]> parts = new ArrayList<>(table.parts());
      int part = random.nextInt(3) > 0 ? 0 : random.nextInt(parts.size());
      byte[] bytes = parts.get(part).clone();
      for (int flips = 1 + random.nextInt(6); flips > 0; flips--) {
        bytes[random.nextInt(bytes.length)] = (byte) random.nextInt();
      }
      parts.set(part, bytes);
      tables.add(new RawObject("flipped/" + i, ObjectType.TABLE, parts));
    }
    return tables;
  }

  // ---- whole ones

  private static Parts written(BufferAllocator allocator, Field field) {
    try (VectorSchemaRoot root = AllTypes.root(allocator, List.of(field), ROWS, SEED)) {
      return write(root, new DictionaryProvider.MapDictionaryProvider(), CodecType.NO_COMPRESSION);
    }
  }

  private static Parts encoded(BufferAllocator allocator) {
    Field encoded = AllTypes.encoded("encoded", AllTypes.DICTIONARY_ID);
    Field text = Field.nullable("text", org.apache.arrow.vector.types.pojo.ArrowType.Utf8.INSTANCE);
    try (VectorSchemaRoot words =
            AllTypes.root(allocator, List.of(text), AllTypes.DICTIONARY_SIZE, SEED);
        VectorSchemaRoot root = AllTypes.root(allocator, List.of(encoded), ROWS, SEED)) {
      FieldVector vector = words.getVector(0);
      Dictionary dictionary = new Dictionary(vector, encoded.getDictionary());
      return write(
          root, new DictionaryProvider.MapDictionaryProvider(dictionary), CodecType.NO_COMPRESSION);
    }
  }

  private static Parts compressed(BufferAllocator allocator, CodecType codec) {
    List<Field> fields =
        AllTypes.fields().stream().filter(f -> f.getName().matches("Utf8|Int.64, true.")).toList();
    try (VectorSchemaRoot root = AllTypes.root(allocator, fields, 500, SEED)) {
      return write(root, new DictionaryProvider.MapDictionaryProvider(), codec);
    }
  }

  private static Parts write(VectorSchemaRoot root, DictionaryProvider provider, CodecType codec) {
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (ArrowStreamWriter writer =
        new ArrowStreamWriter(
            root,
            provider,
            Channels.newChannel(out),
            IpcOption.DEFAULT,
            CompressionCodec.Factory.INSTANCE,
            codec)) {
      writer.start();
      writer.writeBatch();
      writer.end();
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    return Parts.of(out.toByteArray());
  }

  // ---- damage

  private static void garbage(List<RawObject> tables) {
    byte[] noise = new byte[1000];
    new Random(SEED).nextBytes(noise);
    byte[] ones = new byte[64];
    Arrays.fill(ones, (byte) -1);
    byte[] text = "this is no table at all\n".repeat(20).getBytes(StandardCharsets.US_ASCII);
    List<List<byte[]>> parts =
        List.of(
            List.of(),
            List.of(new byte[0]),
            List.of(new byte[4]),
            List.of(new byte[1000]),
            List.of(noise),
            List.of(ones),
            List.of(text),
            List.of(noise, noise),
            List.of(new byte[0], noise));
    for (int i = 0; i < parts.size(); i++) {
      tables.add(new RawObject("garbage/" + i, ObjectType.TABLE, parts.get(i)));
    }
  }

  /** Messages that are cut, of a wrong length, left out, doubled, or in another order. */
  private static void messages(List<RawObject> tables, Parts whole) {
    byte[] metadata = whole.metadata();
    for (int end = 1; end < metadata.length; end += 37) {
      List<byte[]> parts = new ArrayList<>(List.of(Arrays.copyOf(metadata, end)));
      parts.addAll(whole.bodies().subList(1, 3));
      tables.add(new RawObject("cut/" + end, ObjectType.TABLE, parts));
    }
    for (int length : new int[] {-1, Integer.MIN_VALUE, Integer.MAX_VALUE, 0, 1, 7, 1 << 20}) {
      for (int message = 0; message < 3; message++) {
        Parts parts = new Parts(new ArrayList<>(whole.messages()), whole.bodies());
        byte[] lying = parts.messages().get(message).clone();
        ByteBuffer.wrap(lying).order(ByteOrder.LITTLE_ENDIAN).putInt(4, length);
        parts.messages().set(message, lying);
        tables.add(parts.table("length/" + message + "/" + length));
      }
    }
    int[][] orders = {
      {0, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2}, {0, 0, 1, 2}, {0, 1, 1, 2}, {0, 1}, {2}, {0, 1, 2, 0}
    };
    for (int[] order : orders) {
      Parts parts = new Parts(new ArrayList<>(), new ArrayList<>());
      for (int message : order) {
        parts.messages().add(whole.messages().get(message));
        parts.bodies().add(whole.bodies().get(message));
      }
      tables.add(parts.table("order/" + Arrays.toString(order)));
    }
    List<byte[]> bodies = whole.bodies();
    tables.add(new Parts(whole.messages(), List.of()).table("bodies/none"));
    tables.add(new Parts(whole.messages(), bodies.subList(0, 2)).table("bodies/first only"));
    tables.add(
        new Parts(whole.messages(), List.of(bodies.get(2), bodies.get(1))).table("bodies/swapped"));
    byte[] shorter = Arrays.copyOf(bodies.get(2), bodies.get(2).length - 1);
    tables.add(new Parts(whole.messages(), List.of(bodies.get(1), shorter)).table("bodies/short"));
    byte[] longer = Arrays.copyOf(bodies.get(2), bodies.get(2).length + 1);
    tables.add(new Parts(whole.messages(), List.of(bodies.get(1), longer)).table("bodies/long"));
  }

  /** Bodies of the right length whose offsets, views, type ids and indices point anywhere. */
  private static void lyingBodies(List<RawObject> tables, String name, Parts whole) {
    Random random = new Random(SEED);
    for (int body = 1; body < whole.bodies().size(); body++) {
      for (int kind = 0; kind < 7; kind++) {
        byte[] lying = whole.bodies().get(body).clone();
        ByteBuffer words = ByteBuffer.wrap(lying).order(ByteOrder.LITTLE_ENDIAN);
        if (kind == 0) {
          random.nextBytes(lying);
        } else if (kind == 1) {
          Arrays.fill(lying, (byte) -1);
        } else {
          for (int at = 0; at + 4 <= lying.length; at += 4) {
            int old = words.getInt(at);
            words.putInt(
                at,
                switch (kind) {
                  case 2 -> Integer.MAX_VALUE;
                  case 3 -> 0x01010101;
                  // What lies between the first and the last stays hidden from a short look.
                  case 4 -> at % 32 == 16 ? 0x40000000 : old;
                  case 5 -> at % 32 == 20 ? -old : old;
                  default -> at % 64 == 24 ? old + 0x00100000 : old;
                });
          }
        }
        List<byte[]> bodies = new ArrayList<>(whole.bodies());
        bodies.set(body, lying);
        tables.add(new Parts(whole.messages(), bodies).table(name + "body/" + body + "/" + kind));
      }
    }
  }

  /** Metadata that a writer made on purpose: every number in it lies once. */
  private static void lyingMetadata(
      List<RawObject> tables, String name, VectorSchemaRoot root, byte[] body) {
    List<ArrowFieldNode> nodes;
    List<BatchMetadata.Range> ranges = new ArrayList<>();
    List<Long> variadic;
    try (ArrowRecordBatch batch = new VectorUnloader(root).getRecordBatch()) {
      nodes = batch.getNodes();
      variadic = batch.getVariadicBufferCounts();
      long at = 0;
      for (ArrowBuf buffer : batch.getBuffers()) {
        ranges.add(new BatchMetadata.Range(at, buffer.readableBytes()));
        at += (buffer.readableBytes() + 7) / 8 * 8;
      }
    }
    Lies lies = new Lies(tables, name, root.getSchema(), body, MARK);
    // Each column hears some of the lies, all columns together hear all of them.
    int first = tables.size();
    for (long lie : new long[] {LIES[first % LIES.length], LIES[(first + 3) % LIES.length]}) {
      lies.tell("rows", lie, nodes, ranges, variadic, body.length);
      lies.tell("body length", ROWS, nodes, ranges, variadic, lie);
      for (int i = 0; i < nodes.size(); i++) {
        long nulls = nodes.get(i).getNullCount();
        lies.telling(lie)
            .tell("node", ROWS, with(nodes, i, node(MARK, nulls)), ranges, variadic, body.length);
        ArrowFieldNode nullsLie = node(nodes.get(i).getLength(), MARK);
        lies.telling(lie)
            .tell("nulls", ROWS, with(nodes, i, nullsLie), ranges, variadic, body.length);
      }
      for (int i = 0; i < ranges.size(); i++) {
        BatchMetadata.Range range = ranges.get(i);
        var moved = with(ranges, i, new BatchMetadata.Range(lie, range.length()));
        lies.tell("offset", ROWS, nodes, moved, variadic, body.length);
        var longer = with(ranges, i, new BatchMetadata.Range(range.offset(), lie));
        lies.tell("length", ROWS, nodes, longer, variadic, body.length);
      }
      for (int i = 0; i < variadic.size(); i++) {
        lies.tell("variadic", ROWS, nodes, ranges, with(variadic, i, lie), body.length);
      }
    }
    var more = new ArrayList<>(nodes);
    more.replaceAll(node -> new ArrowFieldNode(node.getLength() * 1000L, 0));
    lies.tell("many rows", ROWS * 1000L, more, ranges, variadic, body.length);
    lies.tell("no nodes", ROWS, List.of(), ranges, variadic, body.length);
    lies.tell("no buffers", ROWS, nodes, List.of(), variadic, body.length);
    lies.tell("no variadic", ROWS, nodes, ranges, List.of(), body.length);
    for (int i = 0; i < ranges.size(); i++) {
      BatchMetadata.Range empty = new BatchMetadata.Range(0, 0);
      lies.tell("empty", ROWS, nodes, with(ranges, i, empty), variadic, body.length);
      BatchMetadata.Range odd = new BatchMetadata.Range(3, Math.max(0, ranges.get(i).length() - 8));
      lies.tell("odd", ROWS, nodes, with(ranges, i, odd), variadic, body.length);
    }
  }

  private static ArrowFieldNode node(long length, long nulls) {
    return new ArrowFieldNode(length, nulls);
  }

  private static <T> List<T> with(List<T> all, int index, T other) {
    List<T> changed = new ArrayList<>(all);
    changed.set(index, other);
    return changed;
  }

  /** Collects tables of one column. */
  private record Lies(
      List<RawObject> tables, String name, Schema schema, byte[] body, long instead) {
    /** The same, with a number in place of every {@link #MARK}: nodes of Arrow Java are ints. */
    Lies telling(long lie) {
      return new Lies(tables, name, schema, body, lie);
    }

    void tell(
        String what,
        long rows,
        List<ArrowFieldNode> nodes,
        List<BatchMetadata.Range> ranges,
        List<Long> variadic,
        long bodyLength) {
      ByteArrayOutputStream metadata = new ByteArrayOutputStream();
      metadata.writeBytes(BatchMetadata.schema(schema).array());
      metadata.writeBytes(BatchMetadata.batch(rows, nodes, ranges, variadic, bodyLength).array());
      List<byte[]> parts = new ArrayList<>(List.of(metadata.toByteArray()));
      if (body.length > 0) {
        parts.add(body);
      }
      tables.add(new RawObject(name + what + "/" + tables.size(), ObjectType.TABLE, parts));
    }
  }

  /** Compressed buffers that claim another length than they have, and some that are garbage. */
  private static void compressedLies(List<RawObject> tables, String name, Parts whole) {
    byte[] body = whole.bodies().get(1);
    List<Integer> starts = new ArrayList<>();
    ByteBuffer flatbuffer = ByteBuffer.wrap(whole.messages().get(1));
    Message message = Message.getRootAsMessage(flatbuffer.position(PREFIX).slice());
    var batch =
        (org.apache.arrow.flatbuf.RecordBatch)
            message.header(new org.apache.arrow.flatbuf.RecordBatch());
    for (int i = 0; i < batch.buffersLength(); i++) {
      if (batch.buffers(i).length() > 0) {
        starts.add((int) batch.buffers(i).offset());
      }
    }
    long[] claims = {-2, Long.MIN_VALUE, Long.MAX_VALUE, 1L << 40, 1L << 31, 1 << 26, 0, 1, -1};
    for (int start : starts) {
      for (long claim : claims) {
        byte[] lying = body.clone();
        ByteBuffer.wrap(lying).order(ByteOrder.LITTLE_ENDIAN).putLong(start, claim);
        Parts parts = new Parts(whole.messages(), List.of(lying));
        tables.add(parts.table(name + "claim/" + start + "/" + claim));
      }
      for (int kind = 0; kind < 8; kind++) {
        byte[] lying = body.clone();
        int at = Math.min(lying.length - 1, start + PREFIX + kind * kind);
        Arrays.fill(lying, at, Math.min(lying.length, at + 4), (byte) (31 * kind - 1));
        Parts parts = new Parts(whole.messages(), List.of(lying));
        tables.add(parts.table(name + "garbage/" + start + "/" + kind));
      }
    }
  }
}
