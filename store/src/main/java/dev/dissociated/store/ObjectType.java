package dev.dissociated.store;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;

/** What the buffers of an object mean. The numbers travel and never change. */
public enum ObjectType {
  /** Bytes without a meaning: one buffer, or none. */
  BYTES(1),
  /** A schema and record batches: metadata, then a body for each message that has one. */
  TABLE(2),
  /** A table of one row of one fixed-shape tensor. */
  TENSOR(3),
  /** A Python pickle of protocol 5 and its out-of-band buffers. */
  PICKLE(4);

  final int number;

  ObjectType(int number) {
    this.number = number;
  }

  static ObjectType of(int number) {
    for (ObjectType type : values()) {
      if (type.number == number) {
        return type;
      }
    }
    throw new DissociatedException(
        Code.UNSUPPORTED, "object refused: type not known, type=" + number);
  }

  /** Whether it can be read as a stream of record batches. */
  public boolean isTable() {
    return this == TABLE || this == TENSOR;
  }
}
