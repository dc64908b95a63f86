"""Streams in a GPU's memory, on the stand-in driver: Java serves them, this process reads."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Any

import data
import numpy as np
import pyarrow as pa
import pytest
from conftest import run_script, wait_until
from standin import CudaServer, StandIn, import_numba, read

import dissociated
from dissociated import Code, DissociatedError
from dissociated._device_arrow import ArrowDeviceArray


@pytest.fixture
def client(cuda: StandIn, cuda_server: CudaServer) -> Any:
    with dissociated.connect(cuda_server.uri) as connected:
        yield connected
    gc.collect()
    assert wait_until(lambda: cuda_server.leases() == 0)


def all_of(reader: Any) -> pa.Table:
    with reader:
        return pa.Table.from_batches([batch.copy_to_host() for batch in reader], reader.schema)


def test_reads_every_type(client: dissociated.Client) -> None:
    for name, table in data.for_devices().items():
        if name != "dictionary":
            reader = client.get(name, device="cuda")
            assert reader.fallback_reason is None, name
            found = all_of(reader)
            assert found.schema.equals(table.schema), name
            assert found.equals(table), name
    # Looked into by whoever reads it, and so not read where it lies.
    with pytest.raises(DissociatedError, match="dictionaries are not read") as refused:
        client.get("dictionary", device="cuda")
    assert refused.value.code is Code.UNSUPPORTED


def test_reads_in_place_and_opens_once(client: dissociated.Client, cuda: StandIn) -> None:
    opened = cuda.count("cuIpcOpenMemHandle_v2")
    allocated = cuda.count("cuMemAlloc_v2")
    with client.open_device("numbers") as reader:
        batches = list(reader)
        assert reader.fallback_reason is None and reader.copied_bytes == 0
        statistics = reader.statistics
    assert (statistics.via, statistics.batches, statistics.body_types) == ("cuda", 10, [1])
    assert cuda.count("cuIpcOpenMemHandle_v2") == opened + 1
    assert cuda.count("cuIpcCloseMemHandle") < cuda.count("cuIpcOpenMemHandle_v2")
    assert cuda.count("cuMemAlloc_v2") == allocated
    copied = pa.Table.from_batches([batch.copy_to_host() for batch in batches])
    assert copied.equals(data.numbers())


@pytest.mark.parametrize("metadata", ["flight", "inline"])
def test_memory_lasts_until_the_last_view(
    cuda: StandIn, cuda_server: CudaServer, metadata: str
) -> None:
    with dissociated.connect(cuda_server.uri, metadata=metadata) as client:
        reader = client.get("numbers", device="cuda")
        first = reader.read_next_batch()
        column = first.column("i")
        values = column.values
        rest = list(reader)
        reader.close()
    assert reader.outstanding == 10
    rest.clear()
    assert wait_until(lambda: reader.outstanding == 1)
    assert cuda_server.leases() > 0
    first.close()
    with pytest.raises(ValueError, match="closed"):
        first.column(0)
    column.close()
    column.close()
    assert cuda.live()["live.imports"] == 1
    assert values.copy_to_host().tolist() == data.numbers().column("i").to_pylist()[:10_000]
    values.close()
    assert cuda.live()["live.imports"] == 0, "closed by the last view, at once"
    assert wait_until(lambda: cuda_server.leases() == 0)
    with pytest.raises(ValueError, match="closed"):
        _ = values.__cuda_array_interface__


def test_work_on_the_device_is_waited_for(client: dissociated.Client, cuda: StandIn) -> None:
    reader = client.get("numbers", device="cuda")
    waited = cuda.count("cuCtxSynchronize")
    reader.read_next_batch().close()
    assert cuda.count("cuCtxSynchronize") == waited + 1
    batch = reader.read_next_batch()
    streams = cuda.count("cuStreamSynchronize")
    batch.column(0).used_by(0)
    batch.close()
    assert cuda.count("cuCtxSynchronize") == waited + 1
    assert cuda.count("cuStreamSynchronize") == streams + 1
    del batch
    collected = reader.read_next_batch()
    del collected
    assert wait_until(lambda: cuda.count("cuCtxSynchronize") == waited + 2)
    reader.close()


def test_shows_numbers_to_other_libraries(client: dissociated.Client) -> None:
    (batch,) = client.get("no_nulls", device="cuda")
    column = batch["x"]
    shown = column.__cuda_array_interface__
    assert (shown["shape"], shown["typestr"], shown["version"]) == ((3,), "<i8", 3)
    address, read_only = shown["data"]
    assert not read_only, "torch takes nothing that says so"
    assert np.frombuffer(read(address, 24), "<i8").tolist() == [1, 2, 3]
    assert column.validity is None and column.null_count == 0 and len(column) == 3

    (batch,) = client.get("int16", device="cuda")
    column = batch.column(0)
    assert not hasattr(column, "__cuda_array_interface__"), "a null is no number"
    assert column.values.copy_to_host()[[0, 2]].tolist() == [1, 3]
    assert column.validity is not None
    assert column.validity.copy_to_host()[0] & 7 == 0b101

    (batch,) = client.get("fixed_list", device="cuda")
    assert batch.column(0).values.shape == (3, 2)
    (batch,) = client.get("utf8", device="cuda")
    text = batch.column(0)
    assert text.type == pa.utf8() and text.buffer_count == 3
    with pytest.raises(DissociatedError, match="no numbers to view"):
        _ = text.values
    offsets = text.buffer(1)
    assert offsets is not None
    assert offsets.copy_to_host().view("<i4")[:4].tolist() == [0, 1, 1, 3]
    with pytest.raises(KeyError):
        batch.column("y")


def test_dlpack(client: dissociated.Client, cuda: StandIn) -> None:
    pytest.importorskip("cuda.core.utils", reason="cuda-core is not installed")
    from cuda.core.utils import StridedMemoryView

    (batch,) = client.get("no_nulls", device="cuda")
    column = batch.column(0)
    assert column.__dlpack_device__() == (2, 0)
    view = StridedMemoryView.from_dlpack(column, stream_ptr=-1)
    assert view.ptr == column.__cuda_array_interface__["data"][0]
    assert tuple(view.shape) == (3,) and view.dtype == np.dtype("i8")
    column.close()
    batch.close()
    assert cuda.live()["live.imports"] == 1, "kept by the capsule"
    del view
    assert wait_until(lambda: cuda.live()["live.imports"] == 0)


def test_numba_takes_views(driver: StandIn, client: dissociated.Client, cuda: StandIn) -> None:
    numba_cuda = import_numba()
    (batch,) = client.get("no_nulls", device="cuda")
    array = numba_cuda.as_cuda_array(batch.column(0))
    batch.close()
    assert array.copy_to_host().tolist() == [1, 2, 3]
    assert cuda.live()["live.imports"] == 1, "kept by numba's array"


_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype = ctypes.c_void_p
_pointer_in.argtypes = [ctypes.py_object, ctypes.c_char_p]


def struct_in(capsule: Any) -> ArrowDeviceArray:
    return ArrowDeviceArray.from_address(_pointer_in(capsule, b"arrow_device_array"))


def on_host(capsule: Any, columns: list[Any], as_struct: bool = False) -> None:
    """Replaces every buffer by a copy in host memory, so that a pyarrow without CUDA can read.

    Appends what must live as long.
    """
    shown, keep = struct_in(capsule), []

    def walk(array: Any, column: Any) -> None:
        assert array.n_buffers == len(column.buffers), column
        for i, (_, length) in enumerate(column.buffers):
            if array.buffers[i]:
                copy = ctypes.create_string_buffer(read(array.buffers[i], length), length)
                keep.append(copy)
                array.buffers[i] = ctypes.addressof(copy)
        for i, child in enumerate(column.children):
            walk(array.children[i].contents, child)

    assert (shown.device_type, shown.device_id, shown.sync_event) == (2, 0, None)
    assert ctypes.sizeof(shown) == 128
    shown.device_type, shown.device_id = 1, -1
    if as_struct:
        assert shown.array.n_children == len(columns)
        for i, column in enumerate(columns):
            walk(shown.array.children[i].contents, column)
    else:
        walk(shown.array, columns[0])
    columns += keep


def test_shows_batches_by_the_c_device_interface(client: dissociated.Client, cuda: StandIn) -> None:
    for name in ("every", "every sliced", "numbers"):
        table = data.for_devices()[name]
        all_batches = list(client.open_device(name))
        number, whole = len(all_batches) - 1, all_batches.pop()
        all_batches.clear()
        views = [i for i, f in enumerate(whole.schema) if str(f.type).endswith("_view")]
        for i in views:
            with pytest.raises(DissociatedError, match="views are not exported"):
                whole.column(i).__arrow_c_device_array__()
        for i, field in enumerate(whole.schema):
            if i in views:
                continue
            column = whole.column(i)
            schema, array = column.__arrow_c_device_array__()
            copied = [column._column]
            on_host(array, copied)
            column.close()
            found = pa.Array._import_from_c_device_capsule(schema, array)
            assert found.equals(table.column(i).chunk(number)), f"{name}: {field}"
            del array
        schema = None
        if views:
            continue
        schema, array = whole.__arrow_c_device_array__()
        copied = list(whole._columns)
        on_host(array, copied, as_struct=True)
        whole.close()
        del column, found
        found = pa.RecordBatch._import_from_c_device_capsule(schema, array)
        assert found.equals(table.to_batches()[number])
        assert cuda.live()["live.imports"] == 1, "kept until released"
        del found, array, whole
        assert wait_until(lambda: cuda.live()["live.imports"] == 0)


def test_unused_and_partly_used_exports_are_released(
    client: dissociated.Client, cuda: StandIn
) -> None:
    (batch,) = client.get("struct", device="cuda")
    unused = batch.__arrow_c_device_array__()
    column = batch.column(0).__arrow_c_device_array__()[1]
    batch.close()
    del batch
    shown = struct_in(column).array
    assert (shown.length, shown.null_count, shown.n_children) == (3, 1, 2)
    # A consumer takes a child out, and releases the parent first.
    child = shown.children[0].contents
    taken = type(shown).from_buffer_copy(child)
    child.release = type(child.release)()
    del column
    gc.collect()
    del unused
    assert cuda.live()["live.imports"] == 1
    taken.release(ctypes.pointer(taken))
    assert not taken.release
    assert wait_until(lambda: cuda.live()["live.imports"] == 0)

    (batch,) = client.get("string_view", device="cuda")
    with pytest.raises(DissociatedError, match="views are not exported"):
        batch.__arrow_c_device_array__()


def test_copies_what_the_server_has_in_host_memory(cuda: StandIn, tmp_path: Any) -> None:
    table = data.numbers()
    with dissociated.serve({"numbers": table, "empty": table.slice(0, 0)}) as server:
        for target in (server.uri, server.socket):
            with dissociated.connect(target) as client:
                reader = client.get("numbers", device="cuda")
                assert all_of(reader).equals(table)
                assert reader.copied_bytes > 1_000_000
                assert "device memory" in reader.fallback_reason
                assert all_of(client.get("empty", device="cuda")).num_rows == 0


def test_an_open_memory_is_shared(client: dissociated.Client, cuda: StandIn) -> None:
    info = client._info(dissociated.client.flight.FlightDescriptor.for_path("numbers"), device=True)
    opened = cuda.count("cuIpcOpenMemHandle_v2")
    readers = [client.open_device(info) for _ in range(5)]
    batches = [reader.read_next_batch() for reader in readers]
    for reader in readers:
        reader.close()
    assert cuda.count("cuIpcOpenMemHandle_v2") == opened + 1
    del batches, reader
    assert wait_until(lambda: cuda.live()["live.imports"] == 0)
    assert cuda.count("cuIpcCloseMemHandle") >= 1


def test_says_what_it_cannot_do(client: dissociated.Client) -> None:
    with pytest.raises(DissociatedError, match="no such kind of device") as refused:
        client.get("numbers", device="tpu")
    assert refused.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(DissociatedError) as refused:
        client.get("missing", device="cuda")
    assert refused.value.code is Code.NOT_FOUND


NO_CUDA = """
    import sys
    {before}
    import dissociated
    try:
        dissociated.connect(sys.argv[1]).get("numbers", device="cuda")
    except dissociated.DissociatedError as e:
        print(e.code.name, e.message)
"""


@pytest.mark.parametrize(
    ("environment", "before", "expected"),
    [
        ({"DISSOCIATED_CUDA_LIBRARY": "/none"}, "", "the library named does not load: "),
        ({}, "", "no driver is installed: libcuda.so.1 was not found"),
        ({"STANDIN_CUDA_DEVICES": "0"}, "", "the driver does not start: CUDA_ERROR_NO_DEVICE"),
        ({"STANDIN_CUDA_INIT": "34"}, "", "the driver does not start: CUDA_ERROR_STUB_LIBRARY"),
        ({"STANDIN_CUDA_VERSION": "10020"}, "", "the driver is too old, version=10020"),
        ({}, "sys.modules['cuda.bindings'] = None", "the package cuda-bindings is missing"),
    ],
)
def test_without_cuda(
    driver: StandIn,
    cuda_server: CudaServer,
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    before: str,
    expected: str,
) -> None:
    if "no driver" in expected:
        if os.path.exists("/proc/driver/nvidia"):
            pytest.skip("this machine has a driver")
        environment = {"DISSOCIATED_CUDA_LIBRARY": ""}
    for name, value in {**driver.environment, **environment}.items():
        monkeypatch.setenv(name, value)
    said = run_script(NO_CUDA.format(before=before), cuda_server.uri)
    assert said.startswith(f"UNSUPPORTED CUDA not available: {expected}"), said
    assert "\n" not in said


def test_forked_children_let_it_be(client: dissociated.Client, cuda: StandIn) -> None:
    reader = client.get("numbers", device="cuda")
    batch = reader.read_next_batch()
    values = batch.column("i").values
    child = os.fork()
    if not child:
        try:
            with pytest.raises(DissociatedError, match="CUDA not available: this process was fork"):
                values.copy_to_host()
            values.close()
            batch.close()
            reader.close()
            del values, batch, reader
            gc.collect()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert values.copy_to_host().tolist() == data.numbers().column("i").to_pylist()[:10_000]
    assert reader.read_next_batch().num_rows == 10_000
    reader.close()


def test_a_thousand_rounds_leave_nothing(client: dissociated.Client, cuda: StandIn) -> None:
    info = client._info(
        dissociated.client.flight.FlightDescriptor.for_path("no_nulls"), device=True
    )
    opened = cuda.count("cuIpcOpenMemHandle_v2")
    for _ in range(1000):
        with client.open_device(info) as reader:
            for batch in reader:
                batch.close()
    assert cuda.count("cuIpcOpenMemHandle_v2") - opened == 1000
    assert cuda.count("cuIpcCloseMemHandle") >= 1000
    assert cuda.live()["live.imports"] == 0
