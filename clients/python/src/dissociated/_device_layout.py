"""Which buffers belong to which column, and whether they can be what the schema says.

Checked is what can be without reading the data: that there is a node for every field, and for every
buffer of its type one that is as long as the rows need where that does not depend on the data. What
the data itself says, whoever reads it on the device has to check there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from .errors import Code, DissociatedError, violation

Buffer = tuple[int, int]
"""Address and length; (0, 0) for one without bytes."""


class Column(NamedTuple):
    """One field of a batch, or of a field of it, and where it lies."""

    field: pa.Field
    storage: pa.DataType
    """Its type, or that under an extension type."""
    length: int
    nulls: int
    buffers: tuple[Buffer, ...]
    """In the order of Arrow's C data interface."""
    children: tuple[Column, ...]


def storage_of(kind: pa.DataType) -> pa.DataType:
    """The type under extension types."""
    while isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    return kind


def children_of(kind: pa.DataType) -> list[pa.Field]:
    """The fields under a type that is no extension."""
    types = pa.types
    if types.is_map(kind):
        entries = pa.struct([kind.key_field, kind.item_field])
        return [pa.field("entries", entries, nullable=False)]
    if types.is_struct(kind) or types.is_union(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    if types.is_run_end_encoded(kind):
        return [pa.field("run_ends", kind.run_end_type), pa.field("values", kind.value_type)]
    return [kind.value_field] if hasattr(kind, "value_field") else []


def require_no_dictionaries(schema: pa.Schema) -> None:
    """Reading dictionaries where they lie would mean looking into them."""

    def look(field: pa.Field) -> None:
        kind = storage_of(field.type)
        if pa.types.is_dictionary(kind):
            raise DissociatedError(
                Code.UNSUPPORTED, f"dictionaries are not read where they lie, field={field.name}"
            )
        for child in children_of(kind):
            look(child)

    for field in schema:
        look(field)


def columns_of(
    schema: pa.Schema,
    rows: int,
    nodes: Sequence[tuple[int, int]],
    buffers: Sequence[Buffer],
    variadic: Sequence[int],
) -> list[Column]:
    """The columns of a batch, or PROTOCOL_VIOLATION when it does not fit the schema."""
    layout = _Layout(nodes, buffers, variadic)
    columns = [layout.column(field) for field in schema]
    for column in columns:
        if column.length != rows:
            raise _refused(column.field, "rows of the column differ from those of the batch")
    layout.require_end()
    return columns


class _Layout:
    """Takes nodes and buffers in their order."""

    def __init__(
        self, nodes: Sequence[tuple[int, int]], buffers: Sequence[Buffer], variadic: Sequence[int]
    ) -> None:
        self._nodes = nodes
        self._buffers = buffers
        self._variadic = variadic
        self._node = self._buffer = self._views = 0

    def column(self, field: pa.Field) -> Column:
        if self._node >= len(self._nodes):
            raise _refused(field, "no node")
        length, nulls = self._nodes[self._node]
        self._node += 1
        if not 0 <= nulls <= length:
            raise _refused(field, f"more nulls than rows, rows={length} nulls={nulls}")
        kind = storage_of(field.type)
        buffers = self._of(field, kind, length, nulls)
        children = tuple(self.column(child) for child in children_of(kind))
        least = _least(kind, length)
        for child in children:
            if child.length < least:
                raise _refused(field, f"too few values, rows={child.length} needed={least}")
        return Column(field, kind, length, nulls, tuple(buffers), children)

    def _of(self, field: pa.Field, kind: pa.DataType, rows: int, nulls: int) -> list[Buffer]:
        types = pa.types
        if types.is_null(kind) or types.is_run_end_encoded(kind):
            return []
        if types.is_union(kind):
            found = [self._take(field, rows)]
            return found + [self._take(field, 4 * rows)] if kind.mode == "dense" else found
        found = [self._validity(field, rows, nulls)]
        sizes = _sizes(kind, rows)
        found += [self._take(field, size) for size in sizes]
        if types.is_string_view(kind) or types.is_binary_view(kind):
            if self._views >= len(self._variadic):
                raise _refused(field, "no count of variadic buffers")
            count = self._variadic[self._views]
            self._views += 1
            if not 0 <= count <= len(self._buffers):
                raise _refused(field, f"count of variadic buffers, count={count}")
            found += [self._take(field, 0) for _ in range(count)]
        return found

    def _validity(self, field: pa.Field, rows: int, nulls: int) -> Buffer:
        needed = (rows + 7) // 8
        found = self._take(field, needed if nulls else 0)
        if 0 < found[1] < needed:
            raise _refused(field, f"buffer too short, length={found[1]} needed={needed}")
        return found

    def _take(self, field: pa.Field, least: int) -> Buffer:
        if self._buffer >= len(self._buffers):
            raise _refused(field, "too few buffers")
        found = self._buffers[self._buffer]
        self._buffer += 1
        if found[1] < least:
            raise _refused(field, f"buffer too short, length={found[1]} needed={least}")
        return found

    def require_end(self) -> None:
        if self._node != len(self._nodes) or self._buffer != len(self._buffers):
            raise violation(
                f"body refused: it does not fit the schema: nodes={len(self._nodes)} "
                f"needed={self._node} buffers={len(self._buffers)} needed={self._buffer}"
            )


def _least(kind: pa.DataType, rows: int) -> int:
    """Values that each child must have, as far as the data is not needed to tell."""
    if pa.types.is_struct(kind):
        return rows
    if pa.types.is_fixed_size_list(kind):
        return rows * int(kind.list_size)
    return 0


def _sizes(kind: pa.DataType, rows: int) -> list[int]:
    """Least bytes of each buffer behind the validity."""
    types, ends = pa.types, rows + 1 if rows else 0
    if types.is_struct(kind) or types.is_fixed_size_list(kind):
        return []
    if types.is_list(kind) or types.is_map(kind):
        return [4 * ends]
    if types.is_large_list(kind):
        return [8 * ends]
    if types.is_string(kind) or types.is_binary(kind):
        return [4 * ends, 0]
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return [8 * ends, 0]
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return [16 * rows]
    if types.is_list_view(kind):
        return [4 * rows, 4 * rows]
    if types.is_large_list_view(kind):
        return [8 * rows, 8 * rows]
    return [(rows * kind.bit_width + 7) // 8]


def _refused(field: pa.Field, why: str) -> DissociatedError:
    return violation(f"body refused: it does not fit the schema: {why} field={field.name}")
