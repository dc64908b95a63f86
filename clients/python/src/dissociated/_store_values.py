"""What becomes of a Python value in a store, and what of an object in Python."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Optional

import pyarrow as pa

from ._arrays import TORCH, to_numpy, to_torch
from ._pickling import load_parts
from ._store_table import read_batches, read_table, read_tensor
from .errors import Code, DissociatedError
from .wire.store import ObjectType

_FRAME = b"dissociated.frame"
_POLARS = b"polars"


def as_reader(obj: Any) -> Optional[pa.RecordBatchReader]:
    """The batches of a table, or of what gives an Arrow stream; None for everything else.

    Data frames of pandas are not taken for tables: pickle keeps their index and all their types.
    """
    if isinstance(obj, pa.RecordBatchReader):
        return obj
    if isinstance(obj, pa.Table):
        return obj.to_reader()
    if isinstance(obj, pa.RecordBatch):
        return pa.RecordBatchReader.from_batches(obj.schema, [obj])
    module = type(obj).__module__.partition(".")[0]
    if module in ("pandas", "pyarrow") or not hasattr(type(obj), "__arrow_c_stream__"):
        return None
    try:
        reader = pa.RecordBatchReader.from_stream(obj)
    except (pa.ArrowException, TypeError, AttributeError):
        return None  # a single column, or types that Arrow does not have
    if module != "polars":
        return reader
    marked = reader.schema.with_metadata({**(reader.schema.metadata or {}), _FRAME: _POLARS})
    return pa.RecordBatchReader.from_batches(marked, reader)


def read_object(
    name: str, kind: ObjectType, buffers: Sequence[pa.Buffer], lease: Any, like: Optional[str]
) -> Any:
    """An object as what it was put as, over its memory.

    :param like: take a tensor for one of numpy or torch, whatever it was put as
    """
    if lease.device:
        from ._device_store import read_device_object

        return read_device_object(name, kind, buffers, lease, like)
    if kind is ObjectType.BYTES:
        return memoryview(buffers[0] if buffers else b"").cast("B")
    if kind is ObjectType.TABLE:
        return _frame(read_batches(read_table(buffers)))
    if kind is ObjectType.TENSOR:
        tensor = read_tensor(read_table(buffers))
        framework = like or tensor.framework
        if framework == TORCH and (like or _has("torch")):
            return to_torch(tensor.values, tensor.shape, tensor.dtype, lease)
        return to_numpy(tensor.values, tensor.shape, tensor.dtype)
    if not buffers:
        raise DissociatedError(Code.DATA_CORRUPT, f"object has no pickle, name={name}")
    try:
        return load_parts(buffers, lease)
    except DissociatedError:
        raise
    except Exception as e:  # a pickle may raise whatever it says
        raise DissociatedError(_code_of(e), _unreadable(e, name)) from e


def _code_of(error: Exception) -> Code:
    """What an error of unpickling means."""
    if isinstance(error, (ImportError, AttributeError)):
        return Code.UNSUPPORTED  # of a class that is not here
    return Code.RESOURCE_EXHAUSTED if isinstance(error, MemoryError) else Code.DATA_CORRUPT


def _unreadable(error: Exception, name: str) -> str:
    why = " ".join(str(error).split())
    return f"object cannot be unpickled: {type(error).__name__}: {why}, name={name}"


def _frame(table: pa.Table) -> Any:
    metadata = dict(table.schema.metadata or {})
    if metadata.pop(_FRAME, None) != _POLARS:
        return table
    table = table.replace_schema_metadata(metadata or None)
    if not _has("polars"):
        return table
    import polars

    return polars.from_arrow(table, rechunk=False)


def _has(module: str) -> bool:
    """Whether there is such a package; where not, its users' data comes as what there is."""
    try:
        __import__(module)
    except ImportError:
        return False
    return module in sys.modules
