package dev.dissociated.store.flight;

import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.ipc.ArrowReader;

/**
 * Notices when a dictionary is replaced or appended to within a stream, which neither Arrow's files
 * nor Flight as Java writes it can hold. Not thread-safe.
 */
public final class DictionaryChanges {
  private final ArrowReader reader;
  private final Map<Long, Long> first;

  /** Takes note of the dictionaries as they are, with the first batch loaded. */
  public DictionaryChanges(ArrowReader reader) throws IOException {
    this.reader = reader;
    first = marks();
  }

  /** Whether they are others now. */
  public boolean haveChanged() throws IOException {
    return !marks().equals(first);
  }

  /** Per dictionary a number that changes when it is replaced or appended to. */
  private Map<Long, Long> marks() throws IOException {
    Map<Long, Long> marks = new HashMap<>();
    for (Map.Entry<Long, Dictionary> entry : reader.getDictionaryVectors().entrySet()) {
      FieldVector vector = entry.getValue().getVector();
      long mark = vector.getValueCount();
      for (ArrowBuf buffer : vector.getBuffers(false)) {
        mark = 31 * mark + buffer.memoryAddress();
      }
      marks.put(entry.getKey(), mark);
    }
    return marks;
  }
}
