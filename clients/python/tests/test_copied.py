"""What the daemon is told to copy: addresses that have the bytes, in order."""

from __future__ import annotations

import ctypes
import struct
from typing import Any

import pyarrow as pa
import pytest
from dissociated._copied import Copied
from dissociated._store_table import read_batches, read_table
from dissociated.wire.store import COPIED, INLINE


def contents(copied: Copied) -> list[pa.Buffer]:
    """The buffers as a daemon would make them."""
    entries, inline = copied.payload()
    buffers = []
    for entry in entries:
        kind, zero, at, length = struct.unpack("<IIQQ", entry)
        assert not zero
        if kind == INLINE:
            buffers.append(pa.py_buffer(inline[at : at + length]))
            continue
        assert kind == COPIED
        data = b""
        while len(data) < length:
            address, size = struct.unpack_from("<QQ", inline, at)
            data += ctypes.string_at(address, size) if address else bytes(size)
            at += 16
        assert len(data) == length
        buffers.append(pa.py_buffer(data))
    return buffers


def test_parts_are_buffers_of_their_own() -> None:
    parts = [b"pickle", bytearray(b""), memoryview(bytes(range(200)))]
    copied = Copied.of_parts(parts)
    assert copied.length == 206 and copied.fits
    assert [buffer.to_pybytes() for buffer in contents(copied)] == [bytes(p) for p in parts]


def test_a_body_is_one_buffer_behind_its_metadata() -> None:
    copied = Copied.of_body(b"metadata", [b"12345", bytes(3)])
    assert [buffer.to_pybytes() for buffer in contents(copied)] == [
        b"metadata",
        b"12345" + bytes(3),
    ]


@pytest.mark.parametrize("rows", [1, 100_000])
def test_tables_name_the_memory_of_their_columns(rows: int) -> None:
    columns: dict[str, Any] = {
        "x": pa.array(range(rows)),
        "s": pa.array([None if i % 5 == 0 else str(i) for i in range(rows)]),
        "d": pa.array(["a", "b"] * rows)[:rows].dictionary_encode(),
    }
    table = pa.concat_tables([pa.table(columns), pa.table(columns).slice(rows // 3)])
    copied = Copied.of_stream(table.to_reader())
    assert copied.fits
    assert read_batches(read_table(contents(copied))).equals(table)
    if rows > 1:
        addresses = [address for pieces in copied._buffers for address, _ in pieces]
        assert table.column("x").chunk(0).buffers()[1].address in addresses


def test_too_many_pieces_do_not_fit() -> None:
    part = bytes(8)
    assert not Copied.of_body(b"m", [part] * 20_000).fits
