"""Tables and tensors as they lie in the buffers of a store's objects."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ._arrays import NUMPY, TensorType
from ._decoder import _Source
from .errors import Code, DissociatedError
from .wire.ipc_message import IpcMessage, MessageParser

_PREFIX = struct.Struct("<iI")
_CONTINUATION = -1
_ALIGNMENT = 8
_MOST_DIMENSIONS = 32  # of any numpy
_NODE = struct.Struct("<qq")
_EXTENSION = b"ARROW:extension:name"
_EXTENSION_METADATA = b"ARROW:extension:metadata"
_TENSOR = b"arrow.fixed_shape_tensor"
_DTYPE = b"dissociated.dtype"
_FRAMEWORK = b"dissociated.framework"
_NAME = "tensor"


def _corrupt(why: object) -> DissociatedError:
    return DissociatedError(Code.DATA_CORRUPT, f"not a table: {why}")


def split_stream(read: Any) -> tuple[bytes, list[tuple[int, int]]]:
    """The messages of an IPC stream without their bodies, and where these lie in it.

    :param read: gives bytes of the stream by offset and length
    """
    metadata, bodies, parser, at = [], [], MessageParser(), 0
    while True:
        prefix = read(at, _PREFIX.size)
        if len(prefix) < _PREFIX.size:
            break
        continuation, length = _PREFIX.unpack(prefix)
        if continuation != _CONTINUATION:
            raise _corrupt("a message without its mark")
        if not length:
            break
        flatbuffer = read(at + _PREFIX.size, length)
        message = parser.parse(flatbuffer)
        metadata += [prefix, flatbuffer]
        at += _PREFIX.size + length
        if message.has_body and message.body_length:
            bodies.append((at, message.body_length))
            at += message.body_length
    return b"".join(metadata), bodies


def read_table(buffers: Sequence[Any]) -> pa.RecordBatchReader:
    """The stream in an object's buffers, over their memory.

    :param buffers: pyarrow buffers
    """
    if not buffers:
        raise _corrupt("no metadata")
    metadata, source, parser = buffers[0].to_pybytes(), _Source(), MessageParser()
    at, body, used = 0, 1, 0
    while at < len(metadata):
        if len(metadata) - at < _PREFIX.size:
            raise _corrupt("a message is cut")
        continuation, length = _PREFIX.unpack_from(metadata, at)
        flatbuffer = metadata[at + _PREFIX.size : at + _PREFIX.size + length]
        if continuation != _CONTINUATION or not length or len(flatbuffer) != length:
            raise _corrupt("a message is cut")
        at += _PREFIX.size + length
        message = _parsed(parser, flatbuffer)
        source.put(struct.pack("<I", length))
        source.put(flatbuffer)
        if not message.has_body or not message.body_length:
            continue
        while body < len(buffers) and used == buffers[body].size:
            body, used = body + 1, 0
        if body == len(buffers) or message.body_length > buffers[body].size - used:
            raise _corrupt("a body is missing or too short")
        source.put(buffers[body].slice(used, message.body_length))
        used += message.body_length
    try:
        return pa.ipc.open_stream(pa.PythonFile(source, mode="r"))
    except (pa.ArrowException, OSError) as e:
        raise _corrupt(e) from e


def _parsed(parser: MessageParser, flatbuffer: bytes) -> IpcMessage:
    """What no peer has sent, but a producer has put, breaks no protocol."""
    try:
        message = parser.parse(flatbuffer)
        _ = message.body_length if message.has_body else 0
        return message
    except DissociatedError as e:
        raise _corrupt(e.message) from e


def read_batches(reader: pa.RecordBatchReader) -> pa.Table:
    """All batches, each checked to its last offset: Arrow reads what these say, wherever it is."""
    try:
        _ = reader.schema.names  # text, as all of pyarrow takes for granted
        batches = []
        for batch in reader:
            batch.validate(full=True)
            batches.append(batch)
        return pa.Table.from_batches(batches, reader.schema)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as e:
        raise _corrupt(e) from e


# ---- tensors


def _field(kind: TensorType, shape: Sequence[int], count: int) -> pa.Field:
    described = {"shape": list(shape) + [2] * (kind.per_element - 1)}
    metadata = {
        _EXTENSION: _TENSOR,
        _EXTENSION_METADATA: json.dumps(described, separators=(",", ":")).encode(),
    }
    if kind.dtype:
        metadata[_DTYPE] = kind.dtype.encode()
    if kind.framework != NUMPY:
        metadata[_FRAMEWORK] = kind.framework.encode()
    items = pa.field("item", kind.element, nullable=False)
    return pa.field(_NAME, pa.list_(items, count), nullable=False, metadata=metadata)


def tensor_metadata(kind: TensorType, shape: Sequence[int]) -> bytes:
    """The metadata of a tensor whose elements are all of the one body.

    Made from a tensor of one element: only numbers differ, and the schema.
    """
    count = math.prod(shape) * kind.per_element
    one = pa.Array.from_buffers(kind.element, 1, [None, pa.py_buffer(bytes(_ALIGNMENT))])
    field = _field(kind._replace(dtype=""), [1], 1)
    storage = pa.Array.from_buffers(field.type, 1, [None], children=[one])
    small = _messages(pa.RecordBatch.from_arrays([storage], schema=pa.schema([field])))[1]
    message = MessageParser().parse(small[_PREFIX.size :])
    length = count * kind.element.bit_width // 8
    body = -(-length // _ALIGNMENT) * _ALIGNMENT
    buffers = struct.pack("<6Q", 0, 0, 0, 0, 0, length)
    patched = message.relocated(buffers, body)
    _NODE.pack_into(patched, message._layout.nodes_at + _NODE.size, count, 0)
    schema = pa.schema([_field(kind, shape, count)]).serialize().to_pybytes()
    return schema + small[: _PREFIX.size] + bytes(patched)


def _messages(batch: pa.RecordBatch) -> list[bytes]:
    """The metadata of the schema and of a batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    stream = sink.getvalue().to_pybytes()
    messages, at = [], 0
    while len(messages) < 2:
        _, length = _PREFIX.unpack_from(stream, at)
        messages.append(stream[at : at + _PREFIX.size + length])
        at += _PREFIX.size + length
    return messages


class StoredTensor(NamedTuple):
    """The elements of a tensor as a pyarrow array, and what they are."""

    values: pa.Array
    shape: tuple[int, ...]
    dtype: str
    framework: str


def read_tensor(reader: pa.RecordBatchReader) -> StoredTensor:
    """The tensor in a stream, over its memory."""
    table = read_batches(reader)
    try:
        return _read_tensor(table)
    except (pa.ArrowException, UnicodeDecodeError) as e:
        raise _corrupt(e) from e


def _read_tensor(table: pa.Table) -> StoredTensor:
    if table.num_columns != 1 or table.num_rows != 1 or table.column(0).num_chunks != 1:
        raise _corrupt("not one row of one tensor")
    field, column = table.schema.field(0), table.column(0).chunk(0)
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if not pa.types.is_fixed_size_list(column.type) or column.null_count:
        raise _corrupt("no tensor")
    values = column.flatten()
    kind, shape = tensor_of(field, values.type, len(values))
    if values.null_count:
        raise _corrupt("a tensor with nulls")
    return StoredTensor(values, shape, kind.dtype, kind.framework)


def tensor_of(
    field: pa.Field, element: pa.DataType, count: int
) -> tuple[TensorType, tuple[int, ...]]:
    """What a column says of its one tensor of so many elements: their type, and the shape."""
    described = field.metadata or {}
    shape: Any
    if isinstance(field.type, pa.BaseExtensionType):
        shape = getattr(field.type, "shape", None)
        permutation = getattr(field.type, "permutation", None)
    else:  # a pyarrow that does not know the type
        if described.get(_EXTENSION) != _TENSOR:
            raise _corrupt("no tensor")
        try:
            fields = json.loads(described.get(_EXTENSION_METADATA, b"{}"))
            shape, permutation = fields.get("shape"), fields.get("permutation")
        except (ValueError, AttributeError) as e:
            raise _corrupt(e) from e
    if permutation is not None and list(permutation) != sorted(permutation):
        raise DissociatedError(Code.UNSUPPORTED, "tensor refused: its dimensions are permuted")
    if shape is None:
        raise _corrupt("no tensor")
    if not all(isinstance(length, int) and length >= 0 for length in shape):
        raise _corrupt(f"shape={shape}")
    if len(shape) > _MOST_DIMENSIONS:
        raise DissociatedError(
            Code.UNSUPPORTED, f"tensor refused: too many dimensions, dimensions={len(shape)}"
        )
    if not pa.types.is_primitive(element) or element.bit_width % 8:
        raise DissociatedError(Code.UNSUPPORTED, f"tensor refused: no numbers, type={element}")
    if count != math.prod(shape):
        raise _corrupt(f"shape and size differ, shape={list(shape)} size={count}")
    dtype = described.get(_DTYPE, b"").decode(errors="replace")
    framework = described.get(_FRAMEWORK, NUMPY.encode()).decode(errors="replace")
    kind = TensorType(element, dtype, framework)
    if kind.per_element == 2:
        if not shape or shape[-1] != 2:
            raise _corrupt(f"no complex numbers, shape={list(shape)}")
        shape = shape[:-1]
    return kind, tuple(shape)
