"""Objects of a store: what comes back of each kind, and whose memory it is."""

from __future__ import annotations

import gc
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import run_script, wait_until

import dissociated
from dissociated import Code, DissociatedError
from dissociated.store import ObjectType, Store

LARGE = 100_000  # elements that do not fit into a message

ARRAYS = {
    "int": np.arange(6).reshape(2, 3),
    "large": np.arange(LARGE, dtype="u2"),
    "scalar": np.array(3.5),
    "empty": np.zeros((0, 4)),
    "none": np.zeros((3, 0, 2), "i1"),
    "bool": np.array([True, False, True]),
    "large bool": np.arange(LARGE) % 3 == 0,
    "half": np.array([1.5, np.inf], "float16"),
    "complex": np.array([[1 + 2j, 3j]]),
    "small complex": np.arange(LARGE).astype("complex64"),
    "date": np.array(["2020-01-01", "NaT"], "datetime64[D]"),
    "time": np.arange(LARGE).astype("datetime64[ns]"),
    "duration": np.arange(3).astype("timedelta64[25s]"),
    "transposed": np.arange(12).reshape(3, 4).T,
    "fortran": np.asfortranarray(np.arange(LARGE * 2.0).reshape(2, LARGE)),
    "every third": np.arange(LARGE)[::3],
    "backwards": np.arange(LARGE)[::-1],
    "broadcast": np.broadcast_to(np.arange(3), (LARGE, 3)),
    "unaligned": np.frombuffer(bytes(range(1, 26)), "u1")[1:].view("i8"),
}
PICKLED = {
    "structured": np.array([("a", 1)], [("name", "U3"), ("number", "i4")]),
    "text": np.array(["x", "yy"]),
    "foreign": np.arange(LARGE, dtype=">i4"),
    "long double": np.arange(3, dtype="longdouble"),
    "objects": np.array([{}, None]),
}


@pytest.mark.parametrize("name", [*ARRAYS, *PICKLED])
def test_gives_back_arrays(store: Store, name: str) -> None:
    array = {**ARRAYS, **PICKLED}[name]
    shared = store.put_tensor("x", array)
    store.put("y", array)
    for back in (shared, store.get("x"), store.get("y"), store.get_tensor("y")):
        assert back.dtype == array.dtype and back.shape == array.shape
        np.testing.assert_array_equal(back, array)
    for row in store.list():
        assert row.type is (ObjectType.TENSOR if name in ARRAYS else ObjectType.PICKLE)
    if name in ARRAYS:
        assert not shared.flags.writeable and shared.flags.c_contiguous
        with pytest.raises(ValueError, match="WRITEABLE"):
            shared.flags.writeable = True
    if name == "foreign":
        assert not shared.flags.writeable, "lies in shared memory although it was pickled"


@pytest.mark.parametrize("dtype", ["bool", "complex128", "datetime64[us]", "f2", "i8"])
@pytest.mark.parametrize("shape", [(), 3, (2, 0), (LARGE, 2)])
def test_creates_arrays_where_they_stay(store: Store, dtype: str, shape: Any) -> None:
    with store.create("x", shape, dtype) as own:
        own[...] = 1
        assert "x" not in store
    assert not own.flags.writeable
    back = store.get("x")
    assert back.dtype == np.dtype(dtype) and back.shape == own.shape
    np.testing.assert_array_equal(back, own)


def test_creates_nothing_when_filling_it_fails(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.create("x", 3) as own:
        own[0] = 1 / 0
    assert "x" not in store
    with pytest.raises(DissociatedError) as refused, store.create("x", 3, "U5"):
        pass
    assert refused.value.code is Code.UNSUPPORTED


def test_views_hold_the_lease_and_the_last_one_ends_it(store: Store) -> None:
    store.put("x", np.arange(LARGE))
    view = store.get("x")[5:][::2].reshape(2, -1)
    store.delete("x")
    gc.collect()
    assert store.usage()["leases"] == 1 and view[0, 0] == 5
    del view
    gc.collect()
    assert wait_until(lambda: store.usage()["leases"] == 0)


def test_takes_all_that_is_bytes(store: Store) -> None:
    for data in (b"", b"abc", bytearray(LARGE), memoryview(b"xyz")[1:], pa.py_buffer(b"q" * LARGE)):
        store.put("x", data, replace=True)
        back = store.get("x")
        assert bytes(back) == bytes(data) and back.readonly


def test_gives_back_tables(store: Store) -> None:
    table = pa.table({"x": range(LARGE), "s": [None, "text"] * (LARGE // 2)})
    store.put("table", table)
    store.put("reader", table.to_reader(1000))
    store.put("batch", table.to_batches()[0])
    store.put("none", table.schema.empty_table())
    assert store.get("table").equals(table)
    assert store.get("reader").equals(table) and store.get("reader")["x"].num_chunks == 100
    assert store.get("batch").to_batches() == table.to_batches()[:1]
    assert store.get("none").equals(table.schema.empty_table())


def test_gives_back_pandas_frames_without_copies(store: Store) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "i": np.arange(LARGE),
            "s": [f"text {i % 7}" for i in range(LARGE)],
            "c": pd.Categorical(["x", "y"] * (LARGE // 2)),
        },
        index=pd.date_range("2020", periods=LARGE, freq="s", name="when"),
    )
    store.put("x", {"frame": frame})
    back = store.get("x")["frame"]
    pd.testing.assert_frame_equal(back, frame)
    assert not back["i"].to_numpy().flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        back.loc[back.index[0], "i"] = 7


def mapped(address: int) -> bool:
    """Whether an address lies in a segment."""
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        begin, end = (int(x, 16) for x in line.split()[0].split("-"))
        if begin <= address < end:
            return "memfd:dissociated" in line
    return False


def test_gives_back_polars_frames_without_copies(store: Store) -> None:
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame(
        {
            "i": range(LARGE),
            "f": [None, 1.5] * (LARGE // 2),
            "s": [f"a text that is too long for a view {i}" for i in range(LARGE)],
            "c": pl.Series(["x", "y"] * (LARGE // 2), dtype=pl.Categorical),
            "l": [[1, 2]] * LARGE,
        }
    )
    store.put("x", frame)
    assert store.stat("x").type is ObjectType.TABLE  # type: ignore[union-attr]
    back = store.get("x")
    assert isinstance(back, pl.DataFrame) and back.equals(frame) and back.schema == frame.schema
    for column in "if":
        assert mapped(back[column].to_arrow().buffers()[1].address)
    store.put("column", frame["i"])
    assert store.get("column").equals(frame["i"])


# ---- torch


def test_gives_back_tensors_of_torch(store: Store) -> None:
    torch = pytest.importorskip("torch")
    cases = [
        torch.arange(6).reshape(2, 3),
        torch.tensor(3.5),
        torch.zeros(0, 4),
        torch.ones(3, dtype=torch.bool),
        torch.randn(300, 300),
        torch.randn(300, 300).T,
        torch.randn(400, 400)[:, ::2].to(torch.bfloat16),
        torch.randn(200, 200, dtype=torch.complex64).conj(),
        torch.tensor([1, 2], dtype=torch.uint16),
        torch.randn(LARGE, requires_grad=True) * 2,
        torch.randn(3, 4).expand(5, 3, 4),
    ]
    for tensor in cases:
        back = store.put_tensor("x", tensor, replace=True)
        assert type(back) is torch.Tensor and not back.requires_grad
        assert back.dtype is tensor.dtype and torch.equal(back, tensor.detach())
        assert torch.equal(store.get("x"), back)
    floats = torch.randn(4, 4).to(torch.float8_e4m3fn)
    back = store.put_tensor("x", floats, replace=True)
    assert back.dtype is floats.dtype
    assert torch.equal(back.view(torch.uint8), floats.view(torch.uint8))
    with pytest.raises(DissociatedError) as refused:
        store.put("x", torch.eye(3).to_sparse())
    assert refused.value.code is Code.UNSUPPORTED


@pytest.mark.parametrize("count", [10, LARGE])
def test_changes_of_torch_tensors_stay_private(store: Store, count: int) -> None:
    torch = pytest.importorskip("torch")
    store.put("x", torch.zeros(count))
    first, second = store.get("x"), store.get("x")
    array = store.get_tensor("x", like="numpy")
    first += 1
    first[3] = 5
    assert second.sum() == 0 and array.sum() == 0 and store.get("x").sum() == 0
    assert first[3] == 5 and first[4] == 1
    store.delete("x")
    del second, array
    gc.collect()
    assert first.sum() == count + 4
    assert store.usage()["leases"] == (1 if count == LARGE else 0), "small ones are copies"


def test_knows_tensors_of_torch_inside_of_objects(store: Store) -> None:
    torch = pytest.importorskip("torch")
    weights = torch.randn(300, 300, requires_grad=True)
    layer = torch.nn.Linear(2, 2)
    store.put("x", {"weights": weights, "small": torch.tensor([1, 2]), "layer": layer})
    back = store.get("x")
    assert torch.equal(back["weights"], weights) and back["weights"].requires_grad
    assert back["small"].tolist() == [1, 2] and back["layer"](torch.zeros(2)).shape == (2,)
    with torch.no_grad():
        back["weights"] += 1
    assert torch.equal(store.get("x")["weights"], weights)


def test_gives_tensors_of_one_framework_to_the_other(store: Store) -> None:
    torch = pytest.importorskip("torch")
    for name in ("large", "large bool", "small complex", "half", "scalar", "empty"):
        store.put(name, ARRAYS[name])
        tensor = store.get_tensor(name, like="torch")
        np.testing.assert_array_equal(tensor.numpy(), ARRAYS[name])
    store.put("date", ARRAYS["date"])
    with pytest.raises(DissociatedError) as refused:
        store.get_tensor("date", like="torch")
    assert refused.value.code is Code.UNSUPPORTED
    store.put("bfloat", torch.ones(3, dtype=torch.bfloat16))
    pytest.importorskip("ml_dtypes")
    back = store.get_tensor("bfloat", like="numpy")
    assert back.dtype.name == "bfloat16" and back.astype("f4").tolist() == [1, 1, 1]
    again = store.put_tensor("again", back)
    assert again.dtype == back.dtype and (again == back).all()


def test_takes_tensors_of_tensorflow(store: Store) -> None:
    tensorflow = pytest.importorskip("tensorflow")
    store.put("x", tensorflow.reshape(tensorflow.range(LARGE), (2, -1)))
    assert store.stat("x").type is ObjectType.TENSOR  # type: ignore[union-attr]
    back = store.get("x")
    assert back.shape == (2, LARGE // 2) and back[1, 0] == LARGE // 2
    again = tensorflow.convert_to_tensor(back)
    assert again.dtype == tensorflow.int32 and again[1, 1] == LARGE // 2 + 1


def test_reads_tensors_where_torch_is_not(store: Store) -> None:
    torch = pytest.importorskip("torch")
    store.put("x", torch.arange(LARGE))
    script = """
        import sys
        sys.modules["torch"] = None
        import dissociated
        with dissociated.connect(sys.argv[1]) as client:
            array = client.get("x")
            print(type(array).__module__, array.sum())
    """
    assert run_script(script, store.path) == f"numpy {sum(range(LARGE))}"


# ---- connections


def test_connect_reaches_objects_and_streams(store: Store) -> None:
    with dissociated.connect(store.path) as client:
        table = pa.table({"x": [1, 2]})
        client.put("table", table)
        client.put("bytes", b"abc")
        assert client.put_tensor("tensor", np.eye(2)).sum() == 2
        with client.create("own", 3) as own:
            own[:] = 7
        assert client.get("table").equals(table)
        assert client.open("table").read_all().equals(table)
        assert client.get_tensor("own").sum() == 21 and bytes(client.get("bytes")) == b"abc"
        assert {row["name"] for row in client.list()} == {"table", "bytes", "tensor", "own"}
        client.delete("bytes")
        with pytest.raises(DissociatedError) as missing:
            client.get("bytes")
        assert missing.value.code is Code.NOT_FOUND
        with pytest.raises(DissociatedError) as none:
            client.get_tensor("table")
        assert none.value.code is Code.INVALID_ARGUMENT
        waited = []
        thread = threading.Thread(target=lambda: waited.append(client.get("late", timeout=60)))
        thread.start()
        store.put("late", b"1")
        thread.join()
        assert bytes(waited[0]) == b"1"


def test_is_thread_safe(store: Store) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(50):
                array = np.full(1000 * (i % 20 + 1), number)
                store.put(f"{number}/{i}", array)
                assert (store.get(f"{number}/{i}") == number).all()
                store.delete(f"{number}/{i}")
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def forked(child: Any) -> None:
    """Runs a function in a forked child; fails if it fails."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            child()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_has_a_connection_of_its_own(store: Store) -> None:
    store.put("x", np.arange(LARGE))
    inherited = store.get("x")
    clients = len(store.usage()["clients"])

    def child() -> None:
        nonlocal inherited
        assert inherited[7] == 7
        assert store.get("x")[8] == 8
        assert len(store.usage()["clients"]) == clients + 1
        store.put("child", b"of the child")
        del inherited
        gc.collect()
        store.close()

    forked(child)
    assert wait_until(lambda: len(store.usage()["clients"]) == clients)
    assert store.usage()["leases"] == 1, "the child ends none of its parent's"
    assert inherited[9] == 9 and bytes(store.get("child")) == b"of the child"
    del inherited


def test_a_child_forked_while_others_use_the_store_is_not_stuck(store: Store) -> None:
    stop = threading.Event()

    def work(number: int) -> None:
        while not stop.is_set():
            store.put(f"{number}", np.zeros(LARGE), replace=True)
            store.get(f"{number}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    try:
        for i in range(10):
            forked(lambda i=i: store.put(f"child {i}", b"x") or store.close())  # type: ignore[misc]
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert len(store.list("child")) == 10


def test_forked_children_may_help_to_fill_an_array(store: Store) -> None:
    done, ready = os.pipe(), os.pipe()
    with store.create("x", (2, LARGE), "i4") as own:
        pid = os.fork()
        if pid == 0:
            own[1] = 2
            os.write(ready[1], b"x")
            os.read(done[0], 1)
            own[0] = 99
            os._exit(0)
        own[0] = 1
        os.read(ready[0], 1)
    # The child could still write to what it filled, but not to what the store has.
    os.write(done[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    for descriptor in (*done, *ready):
        os.close(descriptor)
    assert store.get("x").sum() == 3 * LARGE
