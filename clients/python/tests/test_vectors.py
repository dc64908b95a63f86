"""The wire codecs against the vectors that every implementation reads."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from dissociated import Code, DissociatedError, wire

FOLDER = Path(
    os.environ.get("DISSOCIATED_VECTORS")
    or Path(__file__).resolve().parents[3] / "format-docs" / "vectors"
)
# Frames that nobody sends who was not asked for them, messages of a transport that is not here, and
# those of the store, which test_store_messages reads.
OPTIONAL = {"cuda-location", "shm-ring", "store", "store-device", "ucx-control", "ucx-error"}
MODES = {wire.FLIGHT: "flight", wire.INLINE: "inline"}


def read_metadata(data: bytes) -> dict[str, Any]:
    message = wire.MetadataMessage.parse(data)
    if message.end_of_stream:
        assert wire.end_of_stream(message.sequence) == data
        return {"type": "end_of_stream", "sequence": message.sequence}
    assert wire.metadata_message(message.sequence, message.flatbuffer) == data
    return {
        "type": "metadata",
        "sequence": message.sequence,
        "flatbuffer": message.flatbuffer.hex(),
    }


def read_tag(data: bytes) -> dict[str, Any]:
    tag = int.from_bytes(data, "little")
    kind, sequence = wire.body_type(tag), wire.body_sequence(tag)
    assert wire.body_tag(kind, sequence) == tag
    return {"type": kind, "sequence": sequence, "tag": str(tag)}


def read_buffer_list(data: bytes) -> dict[str, Any]:
    found = wire.BufferList.parse(data)
    assert found.encode() == data
    buffers = [[str(a), str(n)] for a, n in zip(found.addresses, found.lengths)]
    return {"total": str(found.total), "buffers": buffers}


def read_free_list(data: bytes) -> dict[str, Any]:
    addresses = wire.parse_free_list(data)
    assert wire.encode_free_list(addresses) == data
    return {"addresses": [str(a) for a in addresses]}


def read_command(data: bytes) -> dict[str, Any]:
    command = wire.ExchangeCommand.parse(data)
    if command is None:
        return {"mode": None}
    assert command.encode() == data
    return {"mode": MODES[command.mode], "ticket": command.ticket.hex()}


def read_offer(data: bytes) -> dict[str, Any]:
    offer = wire.ExchangeOffer.parse(data)
    return {"token": offer.token.hex(), "locations": list(offer.locations)}


def read_exchange_metadata(data: bytes) -> dict[str, Any]:
    messages = wire.split_metadata(data)
    return {"messages": [read_metadata(m) for m in messages]}


def read_frame(data: bytes) -> dict[str, Any]:
    if len(data) < wire.HEADER_LENGTH:
        raise DissociatedError(Code.PROTOCOL_VIOLATION, "cut header")
    length, tag, number = wire.FRAME_HEADER.unpack_from(data)
    kind = wire.check_header(length, tag, number)
    payload = data[wire.HEADER_LENGTH :]
    if len(payload) != length:
        # A connection would wait for the rest, and its end is the failure.
        raise DissociatedError(Code.PROTOCOL_VIOLATION, "cut payload")
    assert wire.frame(kind, payload, tag) == data
    return {"frame": kind.name, **read_payload(kind, tag, payload)}


def read_payload(kind: wire.Kind, tag: int, payload: bytes) -> dict[str, Any]:
    if kind is wire.Kind.HELLO:
        hello = wire.Hello.parse(payload)
        assert hello.encode() == payload
        return {
            "version": 1,
            "nonce": hello.nonce.hex(),
            "segment_set": hello.segment_set.hex(),
            "want_data": str(hello.want_data),
            "free_data": str(hello.free_data),
            "heartbeat_ms": hello.heartbeat_ms,
        }
    if kind is wire.Kind.UNTAGGED:
        return {"payload": payload.hex()}
    if kind is wire.Kind.TAGGED:
        return {"tag": str(tag), "payload": payload.hex()}
    if kind is wire.Kind.SEGMENT:
        segment, size = wire.parse_segment(payload)
        return {"segment": str(segment), "size": str(size)}
    if kind is wire.Kind.ERROR:
        error = wire.parse_error(payload)
        return {"code": error.code.name, "message": error.message}
    if kind is wire.Kind.SUMMARY:
        return {k: str(v) for k, v in wire.Summary.parse(payload)._asdict().items()}
    return {}


def read_uri(text: str, expected: dict[str, Any]) -> dict[str, Any]:
    uri = wire.DissociatedUri.parse(text)
    assert wire.DissociatedUri.parse(str(uri)) == uri
    handle = uri.remote_handle
    found: dict[str, Any] = {
        "scheme": uri.scheme,
        "authority": uri.authority,
        "path": uri.path,
        "want_data": None if uri.want_data is None else str(uri.want_data),
        "free_data": None if uri.free_data is None else str(uri.free_data),
        "remote_handle": None if handle is None else handle.hex(),
        "canonical": str(uri),
    }
    if "parameters" in expected:
        found["parameters"] = {k: uri.parameters.get(k) for k in expected["parameters"]}
    return found


READERS = {
    "metadata-message": read_metadata,
    "body-tag": read_tag,
    "buffer-list": read_buffer_list,
    "free-list": read_free_list,
    "exchange-command": read_command,
    "exchange-offer": read_offer,
    "exchange-metadata": read_exchange_metadata,
    "shm-frame": read_frame,
}


def vectors() -> list[Any]:
    if not FOLDER.is_dir():
        return [pytest.param("", {}, marks=pytest.mark.skip(reason=f"no vectors in {FOLDER}"))]
    return [
        pytest.param(path.stem, vector, id=f"{path.stem}: {vector['name']}")
        for path in sorted(FOLDER.glob("*.json"))
        if path.stem not in OPTIONAL
        for vector in json.loads(path.read_text("utf-8"))
    ]


@pytest.mark.parametrize(("kind", "vector"), vectors())
def test_reads_vector(kind: str, vector: dict[str, Any]) -> None:
    expected = vector.get("expect", {})

    def read() -> dict[str, Any]:
        if kind == "uri":
            return read_uri(vector["text"], expected)
        assert kind in READERS, f"no test reads vectors of kind {kind}"
        return READERS[kind](bytes.fromhex(vector["hex"]))

    if "error" in vector:
        with pytest.raises(DissociatedError) as refused:
            read()
        assert refused.value.code.name == vector["error"]
    else:
        found = read()
        assert {k: found.get(k, "absent") for k in expected} == expected
