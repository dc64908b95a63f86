package dev.dissociated.cli;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowReader;
import org.apache.arrow.vector.util.Text;

/** A small table as rows of plain values. */
final class Rows {
  private Rows() {}

  static List<Map<String, Object>> of(ArrowReader reader) throws IOException {
    List<Map<String, Object>> rows = new ArrayList<>();
    VectorSchemaRoot root = reader.getVectorSchemaRoot();
    while (reader.loadNextBatch()) {
      for (int i = 0; i < root.getRowCount(); i++) {
        Map<String, Object> row = Json.object();
        for (FieldVector vector : root.getFieldVectors()) {
          Object value = vector.getObject(i);
          row.put(vector.getName(), value instanceof Text text ? text.toString() : value);
        }
        rows.add(row);
      }
    }
    return rows;
  }
}
