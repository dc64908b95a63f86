package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.wire.BufferList;
import org.apache.arrow.flatbuf.Buffer;
import org.apache.arrow.flatbuf.RecordBatch;

/**
 * Where each buffer of a batch's metadata lies in the list that came for it: in which entry, how
 * far into it, and how long it is. Buffers without bytes lie nowhere: their length is 0.
 *
 * <p>A list is read in this order: one entry per buffer of the metadata; one entry for the whole
 * packed body; one entry per non-empty buffer.
 */
record LocatedBuffers(int[] entries, long[] offsets, long[] lengths) {
  /**
   * Finds every buffer.
   *
   * @param bodyLength of the packed form, as the metadata says
   * @throws DissociatedException PROTOCOL_VIOLATION when the list does not match
   */
  static LocatedBuffers of(RecordBatch batch, BufferList list, long bodyLength) {
    int count = batch.buffersLength();
    LocatedBuffers found = new LocatedBuffers(new int[count], new long[count], new long[count]);
    if (list.count() == count) {
      found.each(batch, list, false);
    } else if (list.count() == 1 && list.lengths()[0] == bodyLength) {
      found.packed(batch, bodyLength);
    } else {
      found.each(batch, list, true);
    }
    return found;
  }

  private void each(RecordBatch batch, BufferList list, boolean emptyOnesLeftOut) {
    Buffer entry = new Buffer();
    int listed = 0;
    for (int i = 0; i < lengths.length; i++) {
      batch.buffers(entry, i);
      long length = entry.length();
      if (length == 0) {
        listed += emptyOnesLeftOut ? 0 : 1;
        continue;
      }
      if (length < 0 || listed >= list.count() || length > list.lengths()[listed]) {
        throw DissociatedException.violation(
            "body refused: buffer list does not match metadata, buffer="
                + i
                + " length="
                + length
                + " listed="
                + (listed < list.count() ? list.lengths()[listed] : "nothing"));
      }
      entries[i] = listed++;
      lengths[i] = length;
    }
    if (listed != list.count()) {
      throw DissociatedException.violation(
          "body refused: buffer list does not match metadata, buffers="
              + lengths.length
              + " listed="
              + list.count());
    }
  }

  private void packed(RecordBatch batch, long bodyLength) {
    Buffer entry = new Buffer();
    for (int i = 0; i < lengths.length; i++) {
      batch.buffers(entry, i);
      BatchAssembler.checkRange(i, entry.offset(), entry.length(), bodyLength);
      offsets[i] = entry.offset();
      lengths[i] = entry.length();
    }
  }
}
