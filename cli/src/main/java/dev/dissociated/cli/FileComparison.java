package dev.dissociated.cli;

import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.compare.VectorEqualsVisitor;
import org.apache.arrow.vector.ipc.ArrowFileReader;

/** Whether two Arrow files hold the same batches. */
final class FileComparison {
  private FileComparison() {}

  static boolean equal(Path first, Path second, BufferAllocator allocator) throws IOException {
    try (FileChannel a = FileChannel.open(first);
        FileChannel b = FileChannel.open(second);
        ArrowFileReader one = new ArrowFileReader(a, allocator);
        ArrowFileReader two = new ArrowFileReader(b, allocator)) {
      VectorSchemaRoot left = one.getVectorSchemaRoot();
      VectorSchemaRoot right = two.getVectorSchemaRoot();
      if (!left.getSchema().getFields().equals(right.getSchema().getFields())) {
        return false;
      }
      while (true) {
        boolean more = one.loadNextBatch();
        if (more != two.loadNextBatch()) {
          return false;
        }
        if (!more) {
          return true;
        }
        if (!sameBatch(left.getFieldVectors(), right.getFieldVectors())) {
          return false;
        }
      }
    }
  }

  private static boolean sameBatch(List<FieldVector> left, List<FieldVector> right) {
    for (int i = 0; i < left.size(); i++) {
      if (!VectorEqualsVisitor.vectorEquals(left.get(i), right.get(i))) {
        return false;
      }
    }
    return true;
  }
}
