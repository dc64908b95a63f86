package dev.dissociated.store;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.ipc.message.ArrowFieldNode;
import org.apache.arrow.vector.types.FloatingPointPrecision;
import org.apache.arrow.vector.types.pojo.ArrowType;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.FieldType;
import org.apache.arrow.vector.types.pojo.Schema;

/** Tensors whose shape is not that of their elements, and what is no tensor. Stateless. */
public final class DamagedTensors {
  private static final ArrowType F64 = new ArrowType.FloatingPoint(FloatingPointPrecision.DOUBLE);
  private static final int ELEMENTS = 6;
  private static final int BODY = 8 * ELEMENTS;

  private DamagedTensors() {}

  /** A tensor that is whole, two by three. */
  public static RawObject whole() {
    return tensor("whole/tensor", "{\"shape\":[2,3]}", F64, ELEMENTS, ELEMENTS, 1, BODY);
  }

  /** All lies. */
  public static List<RawObject> damaged() {
    List<RawObject> tensors = new ArrayList<>();
    String[] described = {
      "{\"shape\":[2147483648,2147483648]}",
      "{\"shape\":[4294967296,4294967296]}",
      "{\"shape\":[9223372036854775807,2]}",
      "{\"shape\":[4611686018427387904,4]}",
      "{\"shape\":[99999999999999999999]}",
      "{\"shape\":[-2,-3]}",
      "{\"shape\":[-1]}",
      "{\"shape\":[6,0]}",
      "{\"shape\":[0]}",
      "{\"shape\":[]}",
      "{\"shape\":[7]}",
      "{\"shape\":[2,3,1,1,1,2]}",
      "{\"shape\":[" + "1,".repeat(5000) + "6]}",
      "{\"shape\":[2.5]}",
      "{\"shape\":6}",
      "{\"shape\":[[6]]}",
      "{\"shape\":[\"6\"]}",
      "{\"shape\":[2,3],\"permutation\":[1,0]}",
      "{\"shape\":[2,3],\"permutation\":[5,9]}",
      "{\"shape\":[2,3],\"permutation\":[0,0]}",
      "{\"shape\":[2,3],\"permutation\":[-1,0]}",
      "{\"shape\":[2,3],\"permutation\":[99999999999999999999]}",
      "{}",
      "",
      "[1,2",
      "\u0000\uffff",
    };
    for (int i = 0; i < described.length; i++) {
      String name = "tensor/described/" + i;
      tensors.add(tensor(name, described[i], F64, ELEMENTS, ELEMENTS, 1, BODY));
    }
    String fine = "{\"shape\":[2,3]}";
    for (int size : new int[] {-1, 0, 5, 7, 1 << 20, Integer.MAX_VALUE}) {
      tensors.add(tensor("tensor/size/" + size, fine, F64, size, ELEMENTS, 1, BODY));
      String same = "{\"shape\":[" + size + "]}";
      tensors.add(tensor("tensor/same/" + size, same, F64, size, size, 1, BODY));
    }
    for (int rows : new int[] {0, 2, Integer.MAX_VALUE}) {
      tensors.add(tensor("tensor/rows/" + rows, fine, F64, ELEMENTS, ELEMENTS, rows, BODY));
    }
    for (int length : new int[] {0, 8, BODY - 8}) {
      tensors.add(tensor("tensor/body/" + length, fine, F64, ELEMENTS, ELEMENTS, 1, length));
    }
    tensors.add(tensor("tensor/text", fine, ArrowType.Utf8.INSTANCE, ELEMENTS, ELEMENTS, 1, BODY));
    tensors.add(tensor("tensor/bool", fine, ArrowType.Bool.INSTANCE, ELEMENTS, ELEMENTS, 1, BODY));
    byte[] noise = "no tensor, no table, no metadata at all".getBytes(StandardCharsets.US_ASCII);
    tensors.add(new RawObject("tensor/noise", ObjectType.TENSOR, List.of(noise, noise)));
    tensors.add(new RawObject("tensor/nothing", ObjectType.TENSOR, List.of()));
    // A table under the name of a tensor.
    List<byte[]> table = DamagedTables.whole().get(3).parts();
    tensors.add(new RawObject("tensor/table", ObjectType.TENSOR, table));
    return tensors;
  }

  private static RawObject tensor(
      String name,
      String described,
      ArrowType element,
      int listSize,
      int elements,
      int rows,
      int bodyLength) {
    Map<String, String> extension =
        Map.of(
            "ARROW:extension:name",
            "arrow.fixed_shape_tensor",
            "ARROW:extension:metadata",
            described);
    Field items = new Field("item", FieldType.notNullable(element), null);
    FieldType list = new FieldType(false, new ArrowType.FixedSizeList(listSize), null, extension);
    BatchMetadata.Range nothing = new BatchMetadata.Range(0, 0);
    ByteArrayOutputStream metadata = new ByteArrayOutputStream();
    metadata.writeBytes(
        BatchMetadata.schema(new Schema(List.of(new Field("tensor", list, List.of(items)))))
            .array());
    metadata.writeBytes(
        BatchMetadata.batch(
                rows,
                List.of(new ArrowFieldNode(rows, 0), new ArrowFieldNode(elements, 0)),
                List.of(nothing, nothing, new BatchMetadata.Range(0, bodyLength)),
                List.of(),
                BODY)
            .array());
    return new RawObject(name, ObjectType.TENSOR, List.of(metadata.toByteArray(), new byte[BODY]));
  }
}
