package dev.dissociated.protocol.stream;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.wire.SequenceNumber;
import java.util.Arrays;
import java.util.function.Consumer;

/**
 * Brings metadata and bodies together by sequence number, in whatever order they arrive, and gives
 * them out in order. The stream is complete only when the end-of-stream has come, every sequence
 * number below it has come, and no body is pending.
 *
 * <p>No I/O, not thread-safe. At most {@link #WINDOW} messages may be ahead of the next one, with
 * at most {@link #MOST_WAITING_METADATA} bytes of metadata: a server that sends metadata and never
 * the bodies for it must not fill the memory of its client.
 *
 * @param <B> what a body is while it waits
 */
final class MessageJoiner<B> {
  /** How far ahead of the next message another may arrive. */
  static final int WINDOW = 1 << 16;

  /** Bytes of metadata that may wait for something else than their turn. */
  static final long MOST_WAITING_METADATA = 256L << 20;

  private static final int INITIAL_SLOTS = 16;

  /** One message, complete or not. */
  static final class Slot<B> {
    IpcMessage metadata;
    B body;

    private boolean isComplete() {
      return metadata != null && (body != null || !metadata.hasBody());
    }

    private boolean isEmpty() {
      return metadata == null && body == null;
    }
  }

  private Slot<B>[] slots = newSlots(INITIAL_SLOTS);
  private int next;
  private int pending;
  private long metadataBytes;
  private boolean ended;
  private int end;

  MessageJoiner(int firstSequence) {
    this.next = firstSequence;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private static <B> Slot<B>[] newSlots(int count) {
    return new Slot[count];
  }

  /** The metadata of message {@code sequence} has come. */
  void metadata(int sequence, IpcMessage message) {
    Slot<B> slot = slot("metadata", sequence);
    if (slot.metadata != null) {
      throw duplicate("metadata", sequence);
    }
    if (slot.body != null && !message.hasBody()) {
      throw DissociatedException.violation(
          "message refused: a body came for metadata that has none, sequence="
              + SequenceNumber.toString(sequence));
    }
    int length = message.flatbufferLength();
    if (sequence != next && length > MOST_WAITING_METADATA - metadataBytes) {
      throw DissociatedException.violation(
          "metadata refused: too much waits for what has not come, sequence="
              + SequenceNumber.toString(sequence)
              + " length="
              + length
              + " waiting="
              + metadataBytes
              + " "
              + missing());
    }
    pending += slot.isEmpty() ? 1 : 0;
    metadataBytes += length;
    slot.metadata = message;
  }

  /** The body of message {@code sequence} has come; the joiner owns it if this returns. */
  void body(int sequence, B body) {
    Slot<B> slot = slot("body", sequence);
    if (slot.body != null) {
      throw duplicate("body", sequence);
    }
    if (slot.metadata != null && !slot.metadata.hasBody()) {
      throw DissociatedException.violation(
          "body refused: the message has none, sequence=" + SequenceNumber.toString(sequence));
    }
    pending += slot.isEmpty() ? 1 : 0;
    slot.body = body;
  }

  /** The end-of-stream has come: {@code sequence} is one more than the last message's. */
  void end(int sequence) {
    if (ended) {
      throw duplicate("end-of-stream", sequence);
    }
    int ahead = SequenceNumber.distance(next, sequence);
    if (ahead < 0 || ahead > WINDOW) {
      throw DissociatedException.violation(
          "end-of-stream refused: its sequence does not fit the messages before it, sequence="
              + SequenceNumber.toString(sequence)
              + " next="
              + SequenceNumber.toString(next));
    }
    for (int behind = ahead; behind < slots.length; behind++) {
      Slot<B> slot = slots[(next + behind) & (slots.length - 1)];
      if (slot != null && !slot.isEmpty()) {
        throw DissociatedException.violation(
            "end-of-stream refused: messages with higher numbers have come, sequence="
                + SequenceNumber.toString(sequence));
      }
    }
    ended = true;
    end = sequence;
  }

  /** The next message in order, or null when it is not complete yet. */
  Slot<B> poll() {
    Slot<B> slot = slots[next & (slots.length - 1)];
    if (slot == null || !slot.isComplete()) {
      return null;
    }
    Slot<B> result = new Slot<>();
    result.metadata = slot.metadata;
    result.body = slot.body;
    slot.metadata = null;
    slot.body = null;
    pending--;
    metadataBytes -= result.metadata.flatbufferLength();
    next = SequenceNumber.next(next);
    return result;
  }

  /** Whether the next message has its metadata, so that only its body is missing. */
  boolean isAwaitingBody() {
    Slot<B> slot = slots[next & (slots.length - 1)];
    return slot != null && slot.metadata != null;
  }

  /** The metadata of message {@code sequence} if it waits for its body; otherwise null. */
  IpcMessage awaiting(int sequence) {
    int ahead = SequenceNumber.distance(next, sequence);
    if (ahead < 0 || ahead >= slots.length) {
      return null;
    }
    Slot<B> slot = slots[sequence & (slots.length - 1)];
    return slot == null || slot.body != null ? null : slot.metadata;
  }

  /** Whether {@code sequence} is the message to be given out next. */
  boolean isNext(int sequence) {
    return sequence == next;
  }

  /** Whether everything has come and been given out. */
  boolean isComplete() {
    return ended && pending == 0 && next == end;
  }

  /** What is missing, for the message of an error. */
  String missing() {
    return "next="
        + SequenceNumber.toString(next)
        + " pending="
        + pending
        + " end="
        + (ended ? SequenceNumber.toString(end) : "not seen");
  }

  /** Forgets everything; {@code release} gets the bodies that still wait. */
  void clear(Consumer<B> release) {
    for (Slot<B> slot : slots) {
      if (slot != null && slot.body != null) {
        release.accept(slot.body);
      }
    }
    Arrays.fill(slots, null);
    pending = 0;
    metadataBytes = 0;
  }

  private Slot<B> slot(String what, int sequence) {
    int ahead = SequenceNumber.distance(next, sequence);
    if (ahead < 0) {
      throw duplicate(what, sequence);
    }
    if (ahead >= WINDOW || (ended && SequenceNumber.distance(sequence, end) <= 0)) {
      throw DissociatedException.violation(
          what
              + " refused: sequence out of range, sequence="
              + SequenceNumber.toString(sequence)
              + " "
              + missing());
    }
    if (ahead >= slots.length) {
      grow(ahead);
    }
    int index = sequence & (slots.length - 1);
    if (slots[index] == null) {
      slots[index] = new Slot<>();
    }
    return slots[index];
  }

  private void grow(int ahead) {
    Slot<B>[] old = slots;
    slots = newSlots(Integer.highestOneBit(ahead) * 2);
    for (int i = 0; i < old.length; i++) {
      int sequence = next + i;
      slots[sequence & (slots.length - 1)] = old[sequence & (old.length - 1)];
    }
  }

  private static DissociatedException duplicate(String what, int sequence) {
    return DissociatedException.violation(
        what + " refused: came twice, sequence=" + SequenceNumber.toString(sequence));
  }
}
