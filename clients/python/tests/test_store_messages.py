"""The store's messages against the shared vectors, as far as a client writes or reads them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dissociated import DissociatedError
from dissociated._arrays import TensorType
from dissociated._store_table import (
    read_batches,
    read_table,
    read_tensor,
    split_stream,
    tensor_metadata,
)
from dissociated.wire.frame import HEADER_LENGTH
from dissociated.wire.store import (
    COPIED,
    DEVICE,
    INLINE,
    PIN,
    REPLACE,
    SET_TTL,
    SHARED,
    UNPIN,
    ObjectType,
    Op,
    buffer_entry,
    check_name,
    parse_store_message,
    store_frame,
)
from dissociated.wire.store_device import device_bytes, parse_arena, require_arena

VECTORS = Path(__file__).resolve().parents[3] / "format-docs" / "vectors"
ALL = [
    vector
    for file in ("store.json", "store-device.json")
    for vector in json.loads((VECTORS / file).read_text("utf-8"))
]
KINDS = {"INLINE": INLINE, "SHARED": SHARED, "COPIED": COPIED, "DEVICE": DEVICE}


def named(predicate: Any) -> list[Any]:
    return [pytest.param(v, id=v["name"]) for v in ALL if predicate(v)]


def op_of(vector: dict[str, Any]) -> int:
    return bytes.fromhex(vector["hex"])[0] if vector["hex"] else 0


@pytest.mark.parametrize("vector", named(lambda v: "expect" in v and op_of(v) < Op.DONE))
def test_writes_what_clients_say(vector: dict[str, Any]) -> None:
    e = vector["expect"]
    fields: dict[str, Any] = {"request": int(e["request"])}
    op = Op[e["op"]]
    if "name" in e:
        fields["name"] = check_name(e["name"])
    if op is Op.OPEN:
        fields["a"] = int(e["version"])
    elif op is Op.GET:
        fields["a"] = int(e["timeout_ms"])
    elif op is Op.PUT:
        entries = [buffer_entry(KINDS[k], int(a), int(n)) for k, a, n in e["buffers"]]
        flags = REPLACE * e["replace"] | PIN * e["pinned"]
        fields.update(a=int(e["ttl_ms"]), b=len(entries), kind=ObjectType[e["type"]], flags=flags)
        fields["payload"] = b"".join(entries) + bytes.fromhex(e["inline"])
    elif op is Op.RELEASE:
        leases = [int(lease) for lease in e["leases"]]
        fields.update(b=len(leases), payload=struct.pack(f"<{len(leases)}Q", *leases))
    elif op is Op.LIST:
        fields.update(name=e["after"].encode(), a=int(e["most"]), payload=e["prefix"].encode())
    elif op is Op.CHANGE:
        flags = PIN * e["pin"] | UNPIN * e["unpin"] | SET_TTL * e["set_ttl"]
        fields.update(a=int(e["ttl_ms"]), flags=flags)
    elif op is Op.SUBSCRIBE:
        fields["name"] = e["prefix"].encode()
    elif op is Op.HIDDEN:
        fields["a"] = int(e["segment"])
    elif op is Op.ALLOCATE:
        fields.update(a=int(e["bytes"]), payload=device_bytes(e["device"]))
    elif op is Op.DROPPED:
        fields["a"] = int(e["arena"])
    elif op is Op.CLAIM:
        fields.update(a=int(e["lease"]), b=int(e["timeout_ms"]))
    elif op is Op.TAKE:
        fields.update(a=int(e["high"]), b=int(e["low"]))
    assert store_frame(op, **fields)[HEADER_LENGTH:].hex() == vector["hex"]


@pytest.mark.parametrize("vector", named(lambda v: "expect" in v and op_of(v) >= Op.DONE))
def test_reads_what_daemons_say(vector: dict[str, Any]) -> None:
    e = vector["expect"]
    message = parse_store_message(bytes.fromhex(vector["hex"]))
    assert message.op is Op[e["op"]] and message.request == int(e["request"])
    if message.op is Op.OBJECT:
        assert message.a == int(e["lease"]) and ObjectType(message.type).name == e["type"]
        found = [
            ["DEVICE" if s < 0 else "SHARED", str(abs(s) << 40 | at), str(n)]
            for s, at, n in message.buffers()
        ]
        assert found == e["buffers"]
    elif message.op is Op.ROWS:
        assert bool(message.a) == e["more"]
        rows = [row._asdict() for row in message.rows()]
        numbers = ("bytes", "leases", "age_ms", "ttl_ms")
        for row in rows:
            row.update({key: str(row[key]) for key in numbers}, type=row["type"].name)
            row["device_bytes"] = str(row["device_bytes"])
            if row["device"] is None:
                del row["device"], row["device_bytes"]
        assert rows == e["rows"]
    elif message.op is Op.USED:
        usage = message.usage()
        devices = e.get("devices", [])
        assert len(usage["devices"]) == len(devices)
        lists = [*zip(usage["clients"], e["clients"]), *zip(usage["devices"], devices)]
        for told, known in [(usage, e), *lists]:
            names = set(known) - {"op", "request", "clients", "devices"}
            assert {name: str(told[name]) for name in names} == {
                name: str(known[name]) for name in names
            }
    elif message.op is Op.FAILED:
        why = message.failure()
        assert why.code.name == e["code"] and why.message == e["message"]
    elif message.op is Op.CLAIMED:
        assert (message.a, message.b) == (int(e["high"]), int(e["low"]))
    elif message.op in (Op.ALLOCATED, Op.ARENA):
        arena = parse_arena(message)
        memory = arena.memory
        assert memory.handle is not None
        found = {"arena": str(arena.number), "offset": str(arena.offset), "size": str(arena.size)}
        found.update(exporter=memory.exporter, device=memory.device, handle=memory.handle.hex())
        assert {key: found.get(key) for key in set(e) - {"op", "request"}} == {
            key: e[key] for key in set(e) - {"op", "request"}
        }
    elif message.op is Op.DROP:
        assert str(require_arena(message.a)) == e["arena"]
    elif message.op in (Op.OPENED, Op.HIDE):
        assert str(message.a) == e["version" if message.op is Op.OPENED else "segment"]


@pytest.mark.parametrize("vector", named(lambda v: "error" in v and op_of(v) >= Op.DONE))
def test_refuses_what_daemons_must_not_say(vector: dict[str, Any]) -> None:
    with pytest.raises(DissociatedError):
        message = parse_store_message(bytes.fromhex(vector["hex"]))
        if message.op is Op.OBJECT:
            message.buffers()
        if message.op is Op.USED:
            message.usage()
        if message.op in (Op.ALLOCATED, Op.ARENA):
            parse_arena(message)
        if message.op is Op.DROP:
            require_arena(message.a)
        message.rows()


@pytest.mark.parametrize("name", ["", "$x", "/a", "a/", "a\0b", "a\nb", "x" * 1025, "\ud800"])
def test_refuses_names_that_are_none(name: str) -> None:
    with pytest.raises(DissociatedError):
        check_name(name)


def parts(batch: pa.RecordBatch) -> list[pa.Buffer]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue()
    metadata, bodies = split_stream(lambda at, n: stream.to_pybytes()[at : at + n])
    return [pa.py_buffer(metadata), *(stream.slice(at, n) for at, n in bodies)]


def test_reads_tables_whose_bodies_lie_apart_or_behind_each_other() -> None:
    batch = pa.record_batch({"x": pa.array(range(10)), "s": pa.array(["a", None] * 5)})
    metadata, body = parts(batch)
    assert read_batches(read_table([metadata, body])).to_batches() == [batch]
    for damaged in ([], [metadata], [metadata, body.slice(0, 8)], [metadata.slice(0, 100), body]):
        with pytest.raises(DissociatedError):
            read_batches(read_table(damaged))


@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (2, 3), (4, 0, 2)])
@pytest.mark.parametrize("kind", [pa.int8(), pa.uint16(), pa.float32(), pa.float64()])
def test_describes_tensors_as_arrow_would(shape: tuple[int, ...], kind: pa.DataType) -> None:
    count = 1
    for length in shape:
        count *= length
    data = pa.py_buffer(bytes(range(count * kind.bit_width // 8)) + bytes(8))
    values = pa.Array.from_buffers(kind, count, [None, data])
    storage = pa.Array.from_buffers(pa.list_(kind, count), 1, [None], children=[values])
    arrow = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(kind, shape), storage)
    by_arrow = parts(pa.record_batch([arrow], ["tensor"]))
    body = -(-count * kind.bit_width // 8 // 8) * 8
    apart = [pa.py_buffer(tensor_metadata(TensorType(kind), shape))]
    if body:
        apart.append(data.slice(0, body))
    for buffers in (by_arrow, apart):
        tensor = read_tensor(read_table(buffers))
        assert tensor.shape == shape and tensor.values.equals(values)
        assert (tensor.dtype, tensor.framework) == ("", "numpy")
