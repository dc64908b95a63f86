package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import dev.dissociated.protocol.device.DeviceMapping;
import dev.dissociated.protocol.stream.BorrowedStream;
import dev.dissociated.protocol.stream.ReferencedBatch;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.complex.FixedSizeListVector;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/**
 * A tensor as a table of one row: a column of Arrow's canonical extension type {@code
 * arrow.fixed_shape_tensor}. Stateless.
 */
final class TensorFormat {
  private static final String EXTENSION_NAME = "ARROW:extension:name";
  private static final String EXTENSION_METADATA = "ARROW:extension:metadata";
  private static final String NAME = "arrow.fixed_shape_tensor";
  private static final Pattern SHAPE = Pattern.compile("\"shape\"\\s*:\\s*\\[([\\s\\d,]*)\\]");
  private static final Pattern PERMUTATION =
      Pattern.compile("\"permutation\"\\s*:\\s*\\[([\\s\\d,]*)\\]");

  private TensorFormat() {}

  /** The metadata of a tensor whose elements are all of the body. */
  static ByteBuffer metadata(ArrowType element, long[] shape, int elements, long bodyLength) {
    String dimensions =
        Arrays.stream(shape).mapToObj(Long::toString).collect(Collectors.joining(","));
    Map<String, String> extension =
        Map.of(EXTENSION_NAME, NAME, EXTENSION_METADATA, "{\"shape\":[" + dimensions + "]}");
    Field items = new Field("item", FieldType.notNullable(element), null);
    FieldType list = new FieldType(false, new ArrowType.FixedSizeList(elements), null, extension);
    Schema schema = new Schema(List.of(new Field("tensor", list, List.of(items))));
    BatchMetadata.Range nothing = new BatchMetadata.Range(0, 0);
    BatchMetadata.Range all = new BatchMetadata.Range(0, (long) elements * Tensor.width(element));
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    out.writeBytes(BatchMetadata.schema(schema).array());
    out.writeBytes(
        BatchMetadata.batch(
                1,
                List.of(new ArrowFieldNode(1, 0), new ArrowFieldNode(elements, 0)),
                List.of(nothing, nothing, all),
                List.of(),
                bodyLength)
            .array());
    return ByteBuffer.wrap(out.toByteArray());
  }

  /** Refuses what cannot be the schema of a tensor. */
  static void require(Schema schema) {
    List<Field> fields = schema.getFields();
    if (fields.size() != 1
        || !NAME.equals(fields.get(0).getMetadata().get(EXTENSION_NAME))
        || !(fields.get(0).getType() instanceof ArrowType.FixedSizeList)) {
      throw new DissociatedException(
          Code.INVALID_ARGUMENT, "tensor not put: not one column of type " + NAME);
    }
  }

  /** The tensor in a stream, over its memory. */
  static Tensor read(BorrowedStream stream, BufferAllocator allocator) {
    long[] shape = shape(stream);
    try (ArrowReader reader = stream.reader(allocator)) {
      reader.loadNextBatch();
      FieldVector vector = reader.getVectorSchemaRoot().getVector(0);
      if (!(vector instanceof FixedSizeListVector list) || list.isNull(0)) {
        throw corrupt("no fixed-size list, type=" + vector.getField().getType());
      }
      return tensor(list, shape);
    } catch (IOException e) {
      throw corrupt(e.toString());
    }
  }

  /** The tensor in a stream whose body lies on a device, where it is not looked at. */
  static DeviceTensor readOnDevice(BorrowedStream stream, DeviceMapping memory) {
    long[] shape = shape(stream);
    Field field = stream.schema().getFields().get(0);
    boolean fits =
        field.getType() instanceof ArrowType.FixedSizeList list
            && field.getChildren().size() == 1
            && list.getListSize() == Tensor.elements(shape);
    if (!fits) {
      throw corrupt("shape and type differ, shape=" + Arrays.toString(shape) + " field=" + field);
    }
    ArrowType element = field.getChildren().get(0).getType();
    long bytes = Tensor.elements(shape) * Tensor.width(element);
    ReferencedBatch batch = stream.reference(0);
    int last = batch.lengths().length - 1;
    if (last != 2
        || batch.lengths()[last] < bytes
        || batch.nodes().stream().anyMatch(node -> node.getNullCount() != 0)) {
      batch.close();
      throw corrupt("too few bytes, or nulls, shape=" + Arrays.toString(shape));
    }
    long address = bytes == 0 ? 0 : batch.addresses()[last];
    return new DeviceTensor(element, shape, address, memory, batch::close);
  }

  /** The shape of the tensor in a stream that is one, as far as its schema says. */
  private static long[] shape(BorrowedStream stream) {
    List<Field> fields = stream.schema().getFields();
    Map<String, String> metadata = fields.isEmpty() ? Map.of() : fields.get(0).getMetadata();
    if (fields.size() != 1
        || !NAME.equals(metadata.get(EXTENSION_NAME))
        || stream.rows() != 1
        || stream.batches() != 1) {
      throw corrupt("not one row of one fixed-shape tensor, rows=" + stream.rows());
    }
    String described = metadata.getOrDefault(EXTENSION_METADATA, "");
    long[] shape = numbers(SHAPE, described);
    long[] permutation = numbers(PERMUTATION, described);
    if (shape == null) {
      throw corrupt("no shape");
    }
    for (int i = 0; permutation != null && i < permutation.length; i++) {
      if (permutation[i] != i) {
        throw new DissociatedException(
            Code.UNSUPPORTED, "tensor refused: its dimensions are permuted");
      }
    }
    return shape;
  }

  private static Tensor tensor(FixedSizeListVector list, long[] shape) {
    ArrowType element = list.getDataVector().getField().getType();
    int elements = list.getListSize();
    ArrowBuf data = list.getDataVector().getDataBuffer();
    ArrowBuf own =
        data.slice(0, Math.min((long) elements * Tensor.width(element), data.capacity()));
    own.getReferenceManager().retain();
    own.writerIndex(own.capacity());
    try {
      Tensor tensor = new Tensor(element, shape, own);
      if (tensor.elements() != elements) {
        throw corrupt("shape and size differ, shape=" + Arrays.toString(shape));
      }
      return tensor;
    } catch (RuntimeException e) {
      own.close();
      throw e;
    }
  }

  /** The numbers behind a key; null when it is not there. */
  private static long[] numbers(Pattern pattern, String json) {
    Matcher matcher = pattern.matcher(json);
    if (!matcher.find()) {
      return null;
    }
    try {
      return Arrays.stream(matcher.group(1).split(","))
          .map(String::trim)
          .filter(text -> !text.isEmpty())
          .mapToLong(Long::parseLong)
          .toArray();
    } catch (NumberFormatException e) {
      throw corrupt("not a number: " + matcher.group(1));
    }
  }

  private static DissociatedException corrupt(String why) {
    return new DissociatedException(Code.DATA_CORRUPT, "not a tensor: " + why);
  }
}
