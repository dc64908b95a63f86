"""Tables of every type, the same in the server's process and in the test's."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa


def _views() -> dict[str, Any]:
    return {
        "string_view": pa.array(["a", None, "a string that is not inlined"], pa.string_view()),
        "binary_view": pa.array(
            [b"a", None, b"bytes that are not inlined at all"], pa.binary_view()
        ),
    }


def _nested() -> dict[str, Any]:
    struct = pa.struct([("i", pa.int32()), ("s", pa.utf8())])
    sparse = pa.UnionArray.from_sparse(
        pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])]
    )
    dense = pa.UnionArray.from_dense(
        pa.array([0, 1, 0], pa.int8()),
        pa.array([0, 0, 1], pa.int32()),
        [pa.array([1, 2]), pa.array(["b"])],
    )
    return {
        "list": pa.array([[1, 2], None, []], pa.list_(pa.int32())),
        "large_list": pa.array([[1, 2], None, []], pa.large_list(pa.int64())),
        "fixed_list": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int16(), 2)),
        "list_view": pa.array([[1, 2], None, []], pa.list_view(pa.int32())),
        "large_list_view": pa.array([[1, 2], None, []], pa.large_list_view(pa.int32())),
        "struct": pa.array([{"i": 1, "s": "x"}, None, {"i": None, "s": None}], struct),
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.utf8(), pa.int32())),
        "deep": pa.array([[[{"i": 1, "s": "x"}]], None, [[], None]], pa.list_(pa.list_(struct))),
        "sparse_union": sparse,
        "dense_union": dense,
        "run_end": pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None])),
    }


def _flat() -> dict[str, Any]:
    when = datetime.datetime(2020, 1, 2, 3, 4, 5)
    numbers = {
        str(t): pa.array([1, None, 3], t)
        for t in (
            pa.int8(), pa.int16(), pa.int32(), pa.int64(),
            pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
            pa.float32(), pa.float64(),
        )
    }  # fmt: skip
    times = {
        f"{t}": pa.array([1, None, 3], t)
        for t in (
            pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"),
            pa.time64("ns"), pa.duration("s"), pa.duration("ns"),
        )
    }  # fmt: skip
    decimals = [decimal.Decimal("1.20"), None, decimal.Decimal("-3.40")]
    return {
        **numbers,
        **times,
        "float16": pa.array([np.float16(1.5), None, np.float16(2)], pa.float16()),
        "date64": pa.array(
            [datetime.date(2020, 1, 2), None, datetime.date(1970, 1, 1)], pa.date64()
        ),
        "no_nulls": pa.array([1, 2, 3]),
        "bool": pa.array([True, None, False]),
        "null": pa.nulls(3),
        "timestamp": pa.array([when, None, when], pa.timestamp("us")),
        "timestamp_tz": pa.array([when, None, when], pa.timestamp("ns", "Europe/Berlin")),
        "month_day_nano": pa.array([(1, 2, 3), None, (4, 5, 6)], pa.month_day_nano_interval()),
        "decimal128": pa.array(decimals, pa.decimal128(10, 2)),
        "decimal256": pa.array(decimals, pa.decimal256(50, 2)),
        "utf8": pa.array(["a", None, "ü"]),
        "large_utf8": pa.array(["a", None, "ü"], pa.large_utf8()),
        "binary": pa.array([b"a", None, b""]),
        "large_binary": pa.array([b"a", None, b""], pa.large_binary()),
        "fixed_binary": pa.array([b"ab", None, b"cd"], pa.binary(2)),
        "dictionary": pa.array(["a", None, "b"]).dictionary_encode(),
        "dictionary_list": pa.DictionaryArray.from_arrays([1, None, 0], pa.array([[1], [2, 3]])),
    }


def columns() -> dict[str, pa.Array]:
    """One array of three values for every type."""
    return {**_flat(), **_nested(), **_views()}


def cases() -> dict[str, pa.Table]:
    """Every type by itself: whole, without rows, sliced; and all types together."""
    found = {}
    for name, array in columns().items():
        found[f"type {name}"] = pa.table({"x": array})
        found[f"type {name} empty"] = pa.table({"x": array.slice(0, 0)})
        found[f"type {name} sliced"] = pa.table({"x": array.slice(1, 2)})
    found["all types"] = pa.table(columns())
    found["no columns"] = pa.table({}).select([])
    found["no batches"] = pa.table({"x": pa.array([], pa.int32())}).slice(0, 0)
    found["nested dictionary"] = pa.table({"x": pa.array([[{"d": "a"}], [{"d": "b"}]], None)})
    found["wide"] = pa.table({f"c{i}": [i, None] for i in range(5000)})
    return found


def numbers(batches: int = 10, rows: int = 10_000) -> pa.Table:
    """Integers and strings in several batches."""
    strings = [str(i % 1000) for i in range(rows)]
    made = [
        pa.record_batch({"i": np.arange(rows) + i * rows, "f": np.full(rows, i / 2), "s": strings})
        for i in range(batches)
    ]
    return pa.Table.from_batches(made)


def changing_dictionaries() -> Iterator[pa.RecordBatch]:
    """A first dictionary, one that extends it (a delta) and one that replaces it."""
    for values in (["a", "b"], ["a", "b", "c"], ["x", "y"], ["x", "y"], ["x", "y", "z"]):
        array = pa.DictionaryArray.from_arrays(
            pa.array(range(len(values)), pa.int32()), pa.array(values)
        )
        yield pa.record_batch({"d": array})


def for_devices() -> dict[str, pa.Table]:
    """What the tests of device memory read: all types that are read where they lie, and more."""
    found = {n: a for n, a in columns().items() if not n.startswith("dictionary")}
    every = pa.table(found)
    single = ("no_nulls", "int16", "fixed_list", "utf8", "string_view", "struct", "dictionary")
    return {
        "every": every,
        "every sliced": every.slice(1, 1),
        "every empty": every.slice(0, 0),
        "no columns": pa.table({}),
        "numbers": numbers(),
        **{name: pa.table({"x": columns()[name]}) for name in single},
    }
