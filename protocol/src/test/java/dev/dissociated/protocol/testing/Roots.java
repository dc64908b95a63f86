package dev.dissociated.protocol.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.arrow.vector.ExtensionTypeVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compare.VectorEqualsVisitor;

/** Comparison of record batches. */
public final class Roots {
  private Roots() {}

  /** Fails unless both have the same fields, rows and values. */
  public static void assertSame(VectorSchemaRoot expected, VectorSchemaRoot actual) {
    assertEquals(expected.getSchema(), actual.getSchema());
    assertEquals(expected.getRowCount(), actual.getRowCount(), "rows");
    for (int i = 0; i < expected.getFieldVectors().size(); i++) {
      assertSame(expected.getVector(i), actual.getVector(i));
    }
  }

  private static ValueVector storage(FieldVector vector) {
    return vector instanceof ExtensionTypeVector<?> extension
        ? extension.getUnderlyingVector()
        : vector;
  }

  /** Names differ where one of the two is a dictionary. */
  private static boolean sameType(ValueVector left, ValueVector right) {
    return left.getField().getType().equals(right.getField().getType());
  }

  /** Fails unless both have the same values. */
  public static void assertSame(FieldVector expected, FieldVector actual) {
    assertEquals(expected.getValueCount(), actual.getValueCount(), expected.getName());
    assertTrue(
        VectorEqualsVisitor.vectorEquals(storage(expected), storage(actual), Roots::sameType),
        () -> "values differ in " + expected.getField() + "\n" + expected + "\n" + actual);
  }
}
