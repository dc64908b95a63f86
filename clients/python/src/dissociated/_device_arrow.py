"""Columns on a device as the struct ArrowDeviceArray of the Arrow C device interface.

The structs of children lie in one block of host memory. It goes, and with it the hold on the device
memory, when the last of them has been released: consumers may take children out.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

from ._device_layout import Column
from .errors import Code, DissociatedError

DEVICE_CUDA = 2

_CAPSULE = b"arrow_device_array"


class ArrowArray(ctypes.Structure):
    """The struct of the Arrow C data interface."""


_RELEASE = ctypes.CFUNCTYPE(None, ctypes.POINTER(ArrowArray))

ArrowArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))),
    ("dictionary", ctypes.POINTER(ArrowArray)),
    ("release", _RELEASE),
    ("private_data", ctypes.c_void_p),
]


class ArrowDeviceArray(ctypes.Structure):
    """The struct of the Arrow C device interface: 128 bytes."""

    _fields_ = [
        ("array", ArrowArray),
        ("device_id", ctypes.c_int64),
        ("device_type", ctypes.c_int32),
        ("sync_event", ctypes.c_void_p),
        ("reserved", ctypes.c_int64 * 3),
    ]


class _Exported:
    """What structs of one export name, and how many of them have not been released."""

    def __init__(self, hold: Any) -> None:
        self.hold = hold
        self.memory: list[Any] = []
        self.structs = 0


_exported: dict[int, _Exported] = {}
_numbers = itertools.count(1)
_targets: dict[int, ArrowDeviceArray] = {}


@_RELEASE
def _release(pointer: Any) -> None:
    """What consumers call, in C: nothing may be raised there."""
    array = pointer.contents
    for i in range(array.n_children):
        child = array.children[i]
        if child.contents.release:
            child.contents.release(child)
    number = array.private_data
    array.release = _RELEASE()
    exported = _exported.get(number)
    if exported is not None:
        exported.structs -= 1
        if not exported.structs:
            del _exported[number]


def export(
    columns: Sequence[Column], rows: int, ordinal: int, hold: Any, as_struct: bool
) -> ArrowDeviceArray:
    """The columns as a struct array, or the first of them as itself.

    :param hold: kept until everything has been released
    """
    number = next(_numbers)
    exported = _exported[number] = _Exported(hold)
    try:
        target = ArrowDeviceArray(device_id=ordinal, device_type=DEVICE_CUDA)
        if as_struct:
            # Rows of a batch are not null. It is readable already, and so has no event.
            _fill(target.array, rows, 0, [0], columns, exported, number)
        else:
            _fill_column(target.array, columns[0], exported, number)
        return target
    except BaseException:
        del _exported[number]
        raise


def _fill_column(array: ArrowArray, column: Column, exported: _Exported, number: int) -> None:
    if str(column.storage).endswith("_view"):
        raise DissociatedError(
            Code.UNSUPPORTED, f"views are not exported from a device, field={column.field.name}"
        )
    addresses = [address for address, _ in column.buffers]
    _fill(array, column.length, column.nulls, addresses, column.children, exported, number)


def _fill(
    array: ArrowArray,
    length: int,
    nulls: int,
    addresses: Sequence[int],
    children: Sequence[Column],
    exported: _Exported,
    number: int,
) -> None:
    exported.structs += 1
    array.length, array.null_count = length, nulls
    array.n_buffers, array.n_children = len(addresses), len(children)
    buffers = (ctypes.c_void_p * max(1, len(addresses)))(*(a or None for a in addresses))
    array.buffers = ctypes.cast(buffers, ctypes.POINTER(ctypes.c_void_p))
    exported.memory.append(buffers)
    if children:
        structs = [ArrowArray() for _ in children]
        pointers = (ctypes.POINTER(ArrowArray) * len(structs))(*map(ctypes.pointer, structs))
        array.children = ctypes.cast(pointers, ctypes.POINTER(ctypes.POINTER(ArrowArray)))
        exported.memory += [structs, pointers]
        for struct, child in zip(structs, children):
            _fill_column(struct, child, exported, number)
    array.private_data = number
    array.release = _release


# ---- capsules

_DESTRUCTOR = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _DESTRUCTOR)(
    ("PyCapsule_New", ctypes.pythonapi)
)
# By its address: the capsule is going, and must not be referenced again.
_pointer_in = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@_DESTRUCTOR
def _destroy(capsule: int) -> None:
    """Releases what nobody has taken out of the capsule."""
    target = _targets.pop(_pointer_in(capsule, _CAPSULE), None)
    if target is not None and target.array.release:
        target.array.release(ctypes.pointer(target.array))


def capsule_of(target: ArrowDeviceArray) -> Any:
    """The capsule by which Python libraries hand such a struct over."""
    address = ctypes.addressof(target)
    _targets[address] = target
    try:
        return _new_capsule(address, _CAPSULE, _destroy)
    except BaseException:
        del _targets[address]
        raise
