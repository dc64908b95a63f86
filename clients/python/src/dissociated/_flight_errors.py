"""pyarrow's Flight exceptions and this package's codes, in both directions."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.flight as flight

from .errors import Code, DissociatedError

FLIGHT_ERRORS = (flight.FlightError, pa.ArrowException, OSError, KeyError, NotImplementedError)

_CODES: tuple[tuple[type, Code], ...] = (
    (flight.FlightUnavailableError, Code.UNAVAILABLE),
    (flight.FlightUnauthenticatedError, Code.UNAUTHENTICATED),
    (flight.FlightUnauthorizedError, Code.PERMISSION_DENIED),
    (flight.FlightTimedOutError, Code.TIMED_OUT),
    (flight.FlightCancelledError, Code.CANCELLED),
    (pa.ArrowCancelled, Code.CANCELLED),
    (pa.ArrowKeyError, Code.NOT_FOUND),
    (pa.ArrowNotImplementedError, Code.UNSUPPORTED),
    (pa.ArrowMemoryError, Code.RESOURCE_EXHAUSTED),
    (pa.ArrowInvalid, Code.INVALID_ARGUMENT),
)


def from_flight(what: str, error: BaseException) -> DissociatedError:
    """A failure of a Flight call as one of ours."""
    if isinstance(error, DissociatedError):
        return error
    code = next((code for kind, code in _CODES if isinstance(error, kind)), Code.INTERNAL)
    text = " ".join(str(error).split())
    # The debug context that gRPC appends repeats the message and names internals.
    text = text.split(". gRPC client debug context:")[0].split(". Detail:")[0]
    return DissociatedError(code, text if text.startswith(what) else f"{what}: {text}")


def to_flight(error: BaseException) -> BaseException:
    """One of our failures as what pyarrow's Flight server turns into the nearest status."""
    if not isinstance(error, DissociatedError):
        return error
    kinds = {
        Code.INVALID_ARGUMENT: pa.ArrowInvalid,
        Code.NOT_FOUND: pa.ArrowKeyError,
        Code.UNAUTHENTICATED: flight.FlightUnauthenticatedError,
        Code.PERMISSION_DENIED: flight.FlightUnauthorizedError,
        Code.UNAVAILABLE: flight.FlightUnavailableError,
        Code.TIMED_OUT: flight.FlightTimedOutError,
        Code.UNSUPPORTED: pa.ArrowNotImplementedError,
        Code.CANCELLED: flight.FlightCancelledError,
    }
    return kinds.get(error.code, flight.FlightServerError)(error.message)
