package dev.dissociated.protocol;

import java.util.Objects;

/**
 * The one exception of this project: what failed, since what, with the values that explain it as
 * {@code key=value}.
 */
public final class DissociatedException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /**
   * The closed list of causes. The numbers travel in error frames (format-docs/errors.md) and never
   * change.
   */
  public enum Code {
    /** The caller asked for something that makes no sense: a bad name, URI or option. */
    INVALID_ARGUMENT(1),
    /** No stream, name or file of that name exists, or a token is unknown, used or expired. */
    NOT_FOUND(2),
    /** The peer did not say who it is, or what it says is not accepted. */
    UNAUTHENTICATED(3),
    /** The peer is known and may not do this. */
    PERMISSION_DENIED(4),
    /** The peer cannot be reached, has closed the connection or has died. */
    UNAVAILABLE(5),
    /** The peer is connected but has been silent for too long. */
    TIMED_OUT(6),
    /** A limit on memory, leases, descriptors or connections is reached. */
    RESOURCE_EXHAUSTED(7),
    /** The peer sent bytes that break the protocol. */
    PROTOCOL_VIOLATION(8),
    /** The data itself is truncated or is not Arrow. */
    DATA_CORRUPT(9),
    /** Well-formed, but not something that this end can do. */
    UNSUPPORTED(10),
    /** A failure of the producer or a defect of this software. */
    INTERNAL(11),
    /** One of the two ends stopped the stream on purpose. */
    CANCELLED(12),
    /** Something of that name exists, and names are written once. */
    ALREADY_EXISTS(13);

    private final int number;

    Code(int number) {
      this.number = number;
    }

    /** The number of this code on the wire. */
    public int number() {
      return number;
    }

    /** The code with that number; {@link #INTERNAL} when a newer peer sends one not listed here. */
    public static Code of(int number) {
      for (Code code : values()) {
        if (code.number == number) {
          return code;
        }
      }
      return INTERNAL;
    }
  }

  private final Code code;

  /** A failure without a deeper cause. */
  public DissociatedException(Code code, String message) {
    this(code, message, null);
  }

  /** A failure since {@code cause}, whose text should already be part of the message. */
  public DissociatedException(Code code, String message, Throwable cause) {
    super(message, cause);
    this.code = Objects.requireNonNull(code);
  }

  /** Why it failed. */
  public Code code() {
    return code;
  }

  /** The peer sent bytes that break the protocol. */
  public static DissociatedException violation(String message) {
    return new DissociatedException(Code.PROTOCOL_VIOLATION, message);
  }

  /** {@code failure} itself when it is one of ours, otherwise wrapped as an internal error. */
  public static DissociatedException wrap(String what, Throwable failure) {
    if (failure instanceof DissociatedException known) {
      return known;
    }
    String reason = failure.getMessage() == null ? failure.toString() : failure.getMessage();
    return new DissociatedException(Code.INTERNAL, what + ": " + reason, failure);
  }
}
