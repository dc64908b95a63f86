"""Objects in a GPU's memory that a daemon of Java's owns, put and got by Python processes."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from typing import Any

import data
import numpy as np
import pyarrow as pa
import pytest
from conftest import LONGEST, wait_until
from standin import UUID, CudaServer, Memory, StandIn, import_numba, read

import dissociated
from dissociated import Code, DissociatedError, _cuda, _references
from dissociated._device_batch import DeviceBatch
from dissociated._device_store import DeviceTable, DeviceTensor
from dissociated.store import Store

MIB = 1 << 20
LIMIT = 16 * MIB


@pytest.fixture(scope="module")
def lender(driver: StandIn) -> Iterator[CudaServer]:
    """A daemon that lends device memory, and gives up what nobody has dropped soon."""
    environment = {
        **driver.environment,
        "JAVA_TOOL_OPTIONS": "-Ddissociated.cuda.quarantine-ms=500",
    }
    started = CudaServer(environment, "--memory", "256m", "--device-memory", "16m")
    yield started
    started.stop()


@pytest.fixture
def store(cuda: StandIn, lender: CudaServer) -> Iterator[Store]:
    """A connection to it; nothing is left there afterwards."""
    with dissociated.store.connect(lender.socket) as connected:
        yield connected
        for row in connected.list():
            connected.delete(row.name)

        def is_free() -> bool:
            gc.collect()
            (device,) = connected.usage()["devices"]
            return connected.usage()["leases"] == 0 and device["used"] + device["going"] == 0

        assert wait_until(is_free), connected.usage()
    for opened in _references._stores.values():
        opened.close()
    _references._stores.clear()


@pytest.fixture
def made(cuda: StandIn) -> Iterator[Any]:
    """Arrays on the device as other libraries have them."""
    kept: list[Memory] = []

    def make(array: Any, **more: Any) -> Memory:
        array = np.asarray(array)
        kept.append(Memory(array.tobytes(), array.shape, array.dtype.str))
        kept[-1].__cuda_array_interface__.update(more)
        return kept[-1]

    yield make
    for memory in kept:
        memory.close()


ARRAYS = {
    "floats": np.arange(1000, dtype="f4").reshape(10, 100),
    "bytes": np.arange(13, dtype="u1"),
    "truth": np.array([True, False, True]),
    "complex": np.array([1 + 2j, 3 - 4j], "c8"),
    "large": np.arange(300_000, dtype="i8"),
    "scalar": np.float64(3.5),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_puts_and_gets_tensors(name: str, store: Store, made: Any, cuda: StandIn) -> None:
    array = ARRAYS[name]
    source = made(array)
    shared = store.put_tensor(name, source)
    assert isinstance(shared, DeviceTensor) and shared.shape == array.shape
    shown = shared.__cuda_array_interface__
    assert shown["typestr"] == array.dtype.str and shown["data"][0] != source.address
    np.testing.assert_array_equal(shared.copy_to_host(), array)
    again = store.get_tensor(name)
    assert again.__cuda_array_interface__ == shown, "in place"
    np.testing.assert_array_equal(store.get_tensor(name, like="numpy"), array)
    row = store.stat(name)
    assert row is not None and row.device == UUID and row.type.name == "TENSOR"
    assert array.nbytes <= row.device_bytes < row.bytes
    assert [(listed.name, listed.device, listed.device_bytes) for listed in store.list()] == [
        (name, UUID, row.device_bytes)
    ]


def test_objects_outlive_their_producer(store: Store, lender: CudaServer, cuda: StandIn) -> None:
    script = """
        import os, signal, sys
        sys.path.insert(0, sys.argv[2])
        import numpy as np
        import standin
        import dissociated.store
        array = np.arange(100_000, dtype="i4")
        source = standin.Memory(array.tobytes(), array.shape, "<i4")
        store = dissociated.store.connect(sys.argv[1])
        store.put("kept", source)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), lender.socket, os.path.dirname(__file__)],
        env={**os.environ, **cuda.environment},
        timeout=2 * LONGEST,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    tensor = store.get("kept")
    assert tensor.copy_to_host().tolist() == list(range(100_000))


def test_opens_each_allocation_once(store: Store, made: Any, cuda: StandIn) -> None:
    before = cuda.count("cuIpcOpenMemHandle_v2")
    store.put("x", made(np.arange(1000)))
    views = [store.get("x") for _ in range(50)]
    assert cuda.count("cuIpcOpenMemHandle_v2") == before + 1
    with dissociated.store.connect(store.path) as other:
        tensor = other.get("x")
        assert cuda.count("cuIpcOpenMemHandle_v2") == before + 1, "of this process"
        del tensor
    del views
    store.delete("x")
    assert wait_until(lambda: cuda.live()["live.imports"] == 0)


def test_tables_on_the_device(store: Store, cuda: StandIn, cuda_server: CudaServer) -> None:
    with dissociated.connect(cuda_server.uri) as client:
        batches = list(client.get("every", device="cuda")) * 2
        numbers = list(client.get("numbers", device="cuda"))
        store.put("every", batches)
        store.put("numbers", numbers)
        store.put("one", numbers[3])
        del batches, numbers
    table = store.get("every")
    assert isinstance(table, DeviceTable) and isinstance(table.batches[0], DeviceBatch)
    expected = data.for_devices()["every"]
    assert table.copy_to_host().equals(pa.concat_tables([expected, expected]))
    with dissociated.connect(store.path) as client:
        found = client.get("numbers", device="cuda")
        assert found.copy_to_host().equals(data.numbers()) and found.num_rows == 100_000
        column = found.batches[9].column("i")
        found.close()
        assert column.values.copy_to_host()[0] == 90_000
        host = data.numbers().combine_chunks()
        client.put("host", host)
        client.put("host tensor", np.arange(5))
        reader = client.get("host", device="cuda")
        copied = pa.Table.from_batches([batch.copy_to_host() for batch in reader])
        assert copied.equals(host) and reader.copied_bytes > 0
        reader.close()
        assert client.get("host tensor", device="cuda").copy_to_host().tolist() == [0, 1, 2, 3, 4]
        client.put("text", "pickled")
        with pytest.raises(DissociatedError, match="it is no tensor"):
            client.get("text", device="cuda")


def test_a_lease_lasts_until_the_last_view(store: Store, made: Any, cuda: StandIn) -> None:
    tensor = store.put_tensor("x", made(np.arange(10)))
    store.delete("x")
    assert store.usage()["leases"] == 1
    assert tensor.copy_to_host().tolist() == list(range(10))
    waited = cuda.count("cuCtxSynchronize")
    tensor.close()
    assert cuda.count("cuCtxSynchronize") == waited + 1
    assert wait_until(lambda: store.usage()["leases"] == 0)
    with pytest.raises(ValueError, match="closed"):
        tensor.copy_to_host()


def test_room_is_made_and_runs_out(store: Store, made: Any, cuda: StandIn) -> None:
    source = made(np.zeros(6 * MIB, "u1"))
    store.put("old", source)
    store.put("new", source)
    store.put("newer", source)
    assert [row.name for row in store.list()] == ["new", "newer"], "the oldest made room"
    held = [store.get("new"), store.get("newer")]
    with pytest.raises(DissociatedError, match="needs=") as full:
        store.put("more", source)
    assert full.value.code is Code.RESOURCE_EXHAUSTED
    assert "more" not in store
    del held


def test_what_a_put_waits_for(store: Store, made: Any, cuda: StandIn) -> None:
    array = np.arange(10)
    for said, waits in (({"stream": 1}, "cuStreamSynchronize"), ({}, "cuCtxSynchronize")):
        source = made(array, **said)
        before = cuda.count(waits)
        store.put("x", source, replace=True)
        assert cuda.count(waits) > before
    before = cuda.count("cuCtxSynchronize")
    store.put("x", made(array, stream=None), replace=True)
    assert cuda.count("cuCtxSynchronize") == before, "all is there already"


def test_refuses_what_it_cannot_put(store: Store, made: Any, cuda: StandIn) -> None:
    array = np.arange(12, dtype="i4").reshape(3, 4)
    for said, what, code in (
        ({"strides": (4, 12)}, "do not lie in one piece", Code.UNSUPPORTED),
        ({"mask": object()}, "it has a mask", Code.UNSUPPORTED),
        ({"typestr": ">i4"}, "no tensors of that type", Code.UNSUPPORTED),
        ({"typestr": "|O8"}, "no tensors of that type", Code.UNSUPPORTED),
        ({"data": (4096, False)}, "not memory of a device", Code.INVALID_ARGUMENT),
        ({"data": None}, "is damaged", Code.INVALID_ARGUMENT),
        ({"shape": (1 << 40,)}, "too many elements", Code.UNSUPPORTED),
        ({"shape": (1 << 20,)}, "cuMemcpyDtoDAsync failed", Code.INTERNAL),
    ):
        with pytest.raises(DissociatedError, match=what) as refused:
            store.put("x", made(array, **said))
        assert refused.value.code is code, refused.value.message
    assert "x" not in store
    store.put("x", made(array, strides=(16, 4)))
    with pytest.raises(DissociatedError) as refused:
        store.put("x", made(array))
    assert refused.value.code is Code.ALREADY_EXISTS
    with pytest.raises(DissociatedError, match="lies in the memory of a device"):
        store.get_buffers("x")
    assert wait_until(lambda: store.usage()["devices"][0]["used"] == 2 * MIB)


def test_references(store: Store, made: Any, cuda: StandIn) -> None:
    array = np.arange(100_000)
    tensor = store.put_tensor("x", made(array))
    allocated = store.usage()["devices"][0]["used"]
    text = dissociated.dumps({"a": [tensor]}, store=store)
    store.delete("x")
    del tensor
    gc.collect()
    assert len(text) < 1000
    back = dissociated.loads(text)["a"][0]
    assert isinstance(back, DeviceTensor) and back.copy_to_host().tolist() == array.tolist()
    assert store.usage()["devices"][0]["used"] == allocated, "nothing was copied"
    with pytest.raises(DissociatedError) as gone:
        pickle.loads(text)
    assert gone.value.code is Code.NOT_FOUND
    back.close()


def test_references_reach_spawned_processes(
    store: Store, made: Any, cuda: StandIn, lender: CudaServer
) -> None:
    script = """
        import sys, dissociated
        tensor = dissociated.loads(bytes.fromhex(sys.stdin.read()))
        print(int(tensor.copy_to_host().sum()))
    """
    tensor = store.put_tensor("x", made(np.arange(1000)))
    child = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        input=pickle.dumps(tensor).hex(),
        env={**os.environ, **cuda.environment},
        capture_output=True,
        text=True,
        timeout=2 * LONGEST,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    assert child.stdout.strip() == "499500"


def test_numba_arrays_travel_by_reference(store: Store, made: Any, cuda: StandIn) -> None:
    numba_cuda = import_numba()
    array = numba_cuda.as_cuda_array(made(np.arange(1000)))
    back = dissociated.loads(dissociated.dumps(array, store=store))
    assert type(back) is type(array) and back.copy_to_host().tolist() == list(range(1000))


def test_a_daemon_without_device_memory_says_so(cuda: StandIn, made: Any, daemon: str) -> None:
    with dissociated.store.connect(daemon) as plain:
        with pytest.raises(DissociatedError) as refused:
            plain.put("x", made(np.arange(3)))
        assert refused.value.code is Code.UNSUPPORTED, refused.value.message
        assert plain.usage()["devices"] == [] and "x" not in plain


def test_clients_without_cuda_are_told(store: Store, made: Any, driver: StandIn) -> None:
    store.put("x", made(np.arange(3)))
    script = """
        import sys, dissociated
        client = dissociated.connect(sys.argv[1])
        print([(row.name, row.device_bytes) for row in client.store.list()])
        try:
            client.get("x")
        except dissociated.DissociatedError as e:
            print(e.code.name, e.message)
        print(client.store.usage()["leases"])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), store.path],
        env={**os.environ, _cuda.LIBRARY_VARIABLE: "/none"},
        capture_output=True,
        text=True,
        timeout=2 * LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    listed, refused, leases = done.stdout.splitlines()
    assert listed == "[('x', 24)]"
    assert refused.startswith("UNSUPPORTED CUDA not available: the library named does not load: ")
    assert leases == "0"


def test_clients_that_are_killed_leave_nothing(
    store: Store, made: Any, cuda: StandIn, lender: CudaServer
) -> None:
    store.put("x", made(np.arange(3)))
    script = """
        import sys, time, dissociated
        from dissociated.wire.store import Op
        store = dissociated.store.connect(sys.argv[1])
        tensor = store.get("x")
        store._channel.call(Op.ALLOCATE, a=1 << 20, payload=bytes(16))
        print("ready", flush=True)
        time.sleep(600)
    """
    child = subprocess.Popen(
        [sys.executable, "-c", "import dissociated.store\n" + textwrap.dedent(script), store.path],
        env={**os.environ, **cuda.environment},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    assert store.usage()["leases"] == 1 and store.usage()["devices"][0]["used"] == 4 * MIB
    child.kill()
    child.wait(LONGEST)
    child.stdout.close()
    assert wait_until(lambda: store.usage()["leases"] == 0)
    store.delete("x")


def test_many_threads(store: Store, made: Any, cuda: StandIn) -> None:
    source = made(np.arange(1000))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(10):
                name = f"t{number}/{i % 2}"
                store.put(name, source, replace=True)
                assert store.get(name).copy_to_host()[-1] == 999
                store.delete(name)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(2 * LONGEST)
    assert not failures


def test_a_forked_child_leaves_it_alone(store: Store, made: Any, cuda: StandIn) -> None:
    tensor = store.put_tensor("x", made(np.arange(10)))
    child = os.fork()
    if not child:
        try:
            with pytest.raises(DissociatedError, match="CUDA not available: this process was fork"):
                store.get("x")
            tensor.close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert read(tensor.__cuda_array_interface__["data"][0], 16)[8] == 1
    assert store.get("x").copy_to_host().tolist() == list(range(10))
