package dev.dissociated.flight;

import dev.dissociated.protocol.DissociatedException;
import dev.dissociated.protocol.DissociatedException.Code;
import org.apache.arrow.flight.CallStatus;
import org.apache.arrow.flight.FlightRuntimeException;
import org.apache.arrow.flight.FlightStatusCode;

/** Flight statuses as codes of this project, and back (format-docs/errors.md). */
public final class FlightErrors {
  private FlightErrors() {}

  /** What a Flight call failed with, the server's text kept and the original as cause. */
  public static DissociatedException received(FlightRuntimeException failure) {
    String text = failure.status().description();
    return new DissociatedException(
        code(failure.status().code()), text == null ? failure.getMessage() : text, failure);
  }

  /** What any failure of a Flight call is to the caller. */
  static DissociatedException received(String what, Throwable failure) {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause instanceof FlightRuntimeException flight) {
        return received(flight);
      }
    }
    return DissociatedException.wrap(what, failure);
  }

  /** A failure of ours as a producer throws it. */
  public static FlightRuntimeException toFlight(DissociatedException failure) {
    return failure.getCause() instanceof FlightRuntimeException original
        ? original
        : status(failure.code())
            .withDescription(failure.getMessage())
            .withCause(failure)
            .toRuntimeException();
  }

  /** A failure of ours as a Flight status; what is not ours is left to flight-core. */
  static Throwable forFlight(Throwable failure) {
    if (!(failure instanceof DissociatedException known)) {
      return failure;
    }
    if (known.getCause() instanceof FlightRuntimeException original) {
      return original;
    }
    return status(known.code()).withDescription(known.getMessage()).toRuntimeException();
  }

  private static Code code(FlightStatusCode status) {
    return switch (status) {
      case INVALID_ARGUMENT -> Code.INVALID_ARGUMENT;
      case ALREADY_EXISTS -> Code.ALREADY_EXISTS;
      case NOT_FOUND -> Code.NOT_FOUND;
      case TIMED_OUT -> Code.TIMED_OUT;
      case CANCELLED -> Code.CANCELLED;
      case UNAUTHENTICATED -> Code.UNAUTHENTICATED;
      case UNAUTHORIZED -> Code.PERMISSION_DENIED;
      case UNIMPLEMENTED -> Code.UNSUPPORTED;
      case UNAVAILABLE -> Code.UNAVAILABLE;
      case RESOURCE_EXHAUSTED -> Code.RESOURCE_EXHAUSTED;
      default -> Code.INTERNAL;
    };
  }

  private static CallStatus status(Code code) {
    return switch (code) {
      case INVALID_ARGUMENT -> CallStatus.INVALID_ARGUMENT;
      case NOT_FOUND -> CallStatus.NOT_FOUND;
      case UNAUTHENTICATED -> CallStatus.UNAUTHENTICATED;
      case PERMISSION_DENIED -> CallStatus.UNAUTHORIZED;
      case UNAVAILABLE -> CallStatus.UNAVAILABLE;
      case TIMED_OUT -> CallStatus.TIMED_OUT;
      case RESOURCE_EXHAUSTED -> CallStatus.RESOURCE_EXHAUSTED;
      case UNSUPPORTED -> CallStatus.UNIMPLEMENTED;
      case CANCELLED -> CallStatus.CANCELLED;
      case ALREADY_EXISTS -> CallStatus.ALREADY_EXISTS;
      case PROTOCOL_VIOLATION, DATA_CORRUPT, INTERNAL -> CallStatus.INTERNAL;
    };
  }
}
