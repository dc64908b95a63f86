package dev.dissociated.store;

/**
 * What a message is, and which of the header's fields mean something in it. The numbers travel and
 * never change.
 */
enum Op {
  OPEN(1, Shape.PLAIN, 0, true, false),
  PUT(2, Shape.TYPED, Flags.REPLACE | Flags.PIN, true, true),
  GET(3, Shape.NAMED, 0, true, false),
  RELEASE(4, Shape.UNASKED, 0, false, true),
  LIST(5, Shape.PREFIXED, 0, true, false),
  STAT(6, Shape.NAMED, 0, false, false),
  DELETE(7, Shape.NAMED, 0, false, false),
  CHANGE(8, Shape.NAMED, Flags.PIN | Flags.UNPIN | Flags.SET_TTL, true, false),
  SUBSCRIBE(9, Shape.PREFIXED, 0, false, false),
  USAGE(10, Shape.PLAIN, 0, false, false),
  HIDDEN(11, Shape.UNASKED, 0, true, false),
  CLAIM(12, Shape.PLAIN, 0, true, true),
  TAKE(13, Shape.PLAIN, 0, true, true),
  ALLOCATE(14, Shape.PLAIN, 0, true, false),
  DROPPED(15, Shape.UNASKED, 0, true, false),
  DONE(64, Shape.PLAIN, 0, false, false),
  OPENED(65, Shape.PLAIN, 0, true, true),
  OBJECT(66, Shape.TYPED_PLAIN, 0, true, true),
  ROWS(67, Shape.PLAIN, 0, true, true),
  EVENT(68, Shape.TYPED, Flags.GONE, false, false),
  USED(69, Shape.PLAIN, 0, false, true),
  HIDE(70, Shape.UNASKED, 0, true, false),
  FAILED(71, Shape.PLAIN, 0, true, false),
  CLAIMED(72, Shape.PLAIN, 0, true, true),
  ALLOCATED(73, Shape.PLAIN, 0, true, true),
  ARENA(74, Shape.UNASKED, 0, true, false),
  DROP(75, Shape.UNASKED, 0, true, false);

  /** The bits of the field flags. */
  static final class Flags {
    static final int REPLACE = 1;
    static final int PIN = 2;
    static final int UNPIN = 4;
    static final int SET_TTL = 8;
    static final int GONE = 16;

    private Flags() {}
  }

  /** Which of type, name and request a message has. */
  enum Shape {
    PLAIN,
    /** A name. */
    NAMED,
    /** A name, or the beginning of names, or nothing. */
    PREFIXED,
    /** A type and a name. */
    TYPED,
    /** A type. */
    TYPED_PLAIN,
    /** Neither asks nor answers, so it has no request. */
    UNASKED
  }

  final int number;
  final Shape shape;
  final int flags;
  final boolean usesA;
  final boolean usesB;

  Op(int number, Shape shape, int flags, boolean usesA, boolean usesB) {
    this.number = number;
    this.shape = shape;
    this.flags = flags;
    this.usesA = usesA;
    this.usesB = usesB;
  }

  boolean isTyped() {
    return shape == Shape.TYPED || shape == Shape.TYPED_PLAIN;
  }

  boolean isNamed() {
    return shape == Shape.NAMED || shape == Shape.TYPED;
  }

  static Op of(int number) {
    for (Op op : values()) {
      if (op.number == number) {
        return op;
      }
    }
    return null;
  }
}
