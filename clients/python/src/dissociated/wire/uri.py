"""A location by which a stream can be had (specification, "URI Specification")::

    scheme "://" [authority] [path] "?want_data=" u64 ["&free_data=" u64]
                                    ["&remote_handle=" base64] *("&" name "=" value)

Tags are unsigned decimal. ``remote_handle`` is percent-encoded base64; both alphabets are read,
the standard one is written. Unknown parameters are kept. A parameter may come only once.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Optional
from urllib.parse import quote, unquote

from ..errors import Code, DissociatedError

_MAX_U64 = (1 << 64) - 1
_SHAPE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/?#]*))?([^?#]*)(?:\?([^#]*))?")
_ILLEGAL = re.compile(r'[^\x21-\x7e]|["<>\\^`{|}]|%(?![0-9A-Fa-f]{2})')
_PATH_SAFE = "/_-!.~'()*,;:$&+=@"


def _invalid(text: str, reason: str) -> DissociatedError:
    return DissociatedError(Code.INVALID_ARGUMENT, f"location refused: {reason}, uri={text}")


def _decode(text: str, escaped: str) -> str:
    try:
        return unquote(escaped, errors="strict")
    except UnicodeDecodeError as e:
        raise _invalid(text, "an escape is not UTF-8") from e


def _encode(text: str) -> str:
    return quote(text, safe="*").replace("~", "%7E")


class DissociatedUri:
    """A parsed location. Immutable; equal when the text is."""

    __slots__ = ("authority", "parameters", "path", "scheme")

    def __init__(
        self,
        scheme: str,
        authority: str = "",
        path: str = "",
        parameters: Optional[dict[str, str]] = None,
    ) -> None:
        self.scheme = scheme
        self.authority = authority
        self.path = path
        self.parameters = dict(parameters or {})

    @classmethod
    def parse(cls, text: str) -> DissociatedUri:
        """Reads a location, or raises INVALID_ARGUMENT."""
        shape = _SHAPE.fullmatch(text)
        if shape is None or _ILLEGAL.search(text):
            raise _invalid(text, "not of the form scheme://authority/path?parameters")
        scheme, authority, path, query = shape.groups()
        if not path.startswith("/") and (path or authority is None):
            raise _invalid(text, "not of the form scheme://authority/path?parameters")
        parameters: dict[str, str] = {}
        for pair in query.split("&") if query else ():
            name, equals, value = pair.partition("=")
            if not equals or not name:
                raise _invalid(text, f"not name=value: {pair}")
            name = _decode(text, name.replace("+", " "))
            if name in parameters:
                raise _invalid(text, f"parameter given twice: {name}")
            # A raw '+' is a base64 digit here, not a space: RFC 3986 knows no other meaning.
            parameters[name] = _decode(text, value)
        parsed = cls(scheme, authority or "", _decode(text, path), parameters)
        parsed._unsigned("want_data")
        parsed._unsigned("free_data")
        _ = parsed.remote_handle
        return parsed

    @property
    def want_data(self) -> Optional[int]:
        """The tag that asks this server for a stream."""
        return self._unsigned("want_data")

    @property
    def free_data(self) -> Optional[int]:
        """The tag that ends leases; None when the server never sends by reference."""
        return self._unsigned("free_data")

    @property
    def remote_handle(self) -> Optional[bytes]:
        """What is needed to reach the server's memory."""
        return self.binary("remote_handle")

    def binary(self, name: str) -> Optional[bytes]:
        """A parameter whose value is base64."""
        value = self.parameters.get(name)
        if value is None:
            return None
        standard = value.replace("-", "+").replace("_", "/")
        if "=" not in standard:
            standard += "=" * (-len(standard) % 4)
        try:
            return base64.b64decode(standard, validate=True)
        except (binascii.Error, ValueError) as e:
            raise _invalid(str(self), f"{name} is not base64: {e}") from e

    def _unsigned(self, name: str) -> Optional[int]:
        value = self.parameters.get(name)
        if value is None:
            return None
        if value.isascii() and value.isdigit() and len(value) <= 4300:
            number = int(value)
            if number <= _MAX_U64:
                return number
        raise _invalid(str(self), f"{name} is not an unsigned 64-bit decimal: {value}")

    def with_parameter(self, name: str, value: str) -> DissociatedUri:
        """This location with one parameter more, or another value for it."""
        return DissociatedUri(
            self.scheme, self.authority, self.path, {**self.parameters, name: value}
        )

    def with_remote_handle(self, handle: bytes) -> DissociatedUri:
        """This location with the handle to the server's memory."""
        return self.with_parameter("remote_handle", base64.b64encode(handle).decode("ascii"))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DissociatedUri) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        query = "&".join(f"{_encode(k)}={_encode(v)}" for k, v in self.parameters.items())
        path = quote(self.path, safe=_PATH_SAFE)
        # With nothing else there the '?' is what makes it a URI.
        mark = "?" if query or not (self.authority or path) else ""
        return f"{self.scheme}://{self.authority}{path}{mark}{query}"

    def __repr__(self) -> str:
        return f"DissociatedUri({str(self)!r})"
