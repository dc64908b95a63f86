package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import java.util.List;
import org.apache.arrow.vector.BaseIntVector;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.dictionary.Dictionary;
import org.apache.arrow.vector.dictionary.DictionaryProvider;
import org.apache.arrow.vector.types.pojo.DictionaryEncoding;

/** Checks that the indices of dictionary-encoded columns are in their dictionaries. Stateless. */
final class IndexCheck {
  private IndexCheck() {}

  /**
   * Checks vectors and their children.
   *
   * @throws DissociatedException PROTOCOL_VIOLATION when an index leads nowhere
   */
  static void check(List<FieldVector> vectors, DictionaryProvider dictionaries) {
    for (FieldVector vector : vectors) {
      DictionaryEncoding encoding = vector.getField().getDictionary();
      if (encoding == null) {
        check(vector.getChildrenFromFields(), dictionaries);
        continue;
      }
      Dictionary dictionary = dictionaries.lookup(encoding.getId());
      if (dictionary == null || !(vector instanceof BaseIntVector indices)) {
        throw refused(vector, "no dictionary, or indices that are no integers");
      }
      long most = dictionary.getVector().getValueCount();
      for (int i = 0; i < vector.getValueCount(); i++) {
        if (!vector.isNull(i)) {
          long index = indices.getValueAsLong(i);
          if (index < 0 || index >= most) {
            throw refused(vector, "row=" + i + " index=" + index + " entries=" + most);
          }
        }
      }
    }
  }

  private static DissociatedException refused(FieldVector vector, String why) {
    return DissociatedException.violation(
        "body refused: an index is not in its dictionary, field="
            + vector.getField().getName()
            + " "
            + why);
  }
}
