"""References: what goes to another process without being copied, and when that ends."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import workers
from conftest import LONGEST, wait_until

import dissociated
from dissociated import Code, DissociatedError, dumps, loads
from dissociated.store import Store

LARGE = 100_000


def objects(store: Store) -> int:
    return int(store.usage()["objects"])


def leases(store: Store) -> int:
    gc.collect()
    return int(store.usage()["leases"])


@pytest.fixture(scope="module", autouse=True)
def helpers() -> None:
    """Processes of multiprocessing's own, to which this one keeps pipes for as long as it lives."""
    resource_tracker.ensure_running()
    forkserver.ensure_running()


@pytest.fixture(autouse=True)
def no_references_left() -> Iterator[None]:
    """This process's connections for references are closed, so that none is taken for a leak."""
    from dissociated import _references

    yield
    for store in _references._stores.values():
        store.close()
    _references._stores.clear()


def test_carries_what_is_large_by_reference(store: Store) -> None:
    pd = pytest.importorskip("pandas")
    value = {
        "small": np.arange(10),
        "large": np.arange(LARGE),
        "frame": pd.DataFrame({"i": np.arange(LARGE), "s": ["text"] * LARGE}),
        "table": pa.table({"x": range(LARGE)}),
        "objects": np.array([{}, None] * LARGE),
        "structured": np.zeros(LARGE, [("a", "i4"), ("b", "f8")]),
    }
    data = dumps({k: v for k, v in value.items() if k != "objects"}, store=store)
    assert len(data) < 20_000 and leases(store) >= 4 and objects(store) == 0
    back = pickle.loads(data)
    np.testing.assert_array_equal(back["large"], value["large"])
    assert not back["large"].flags.writeable
    pd.testing.assert_frame_equal(back["frame"], value["frame"])
    assert back["table"].equals(value["table"]) and back["small"].tolist() == list(range(10))
    assert back["structured"].dtype == value["structured"].dtype
    assert loads(dumps(value["objects"], store=store))[0] == {}
    del back
    assert wait_until(lambda: leases(store) == 0)
    assert loads(dumps(np.arange(3), store=store, threshold=1)).tolist() == [0, 1, 2]


def test_does_not_copy_what_lies_in_the_store(store: Store) -> None:
    shared = store.put_tensor("x", np.arange(LARGE).reshape(100, -1))
    used = store.usage()["used"]
    for view in (shared, shared.T, shared[3:50:2], shared[::-1, ::-1], shared[0:0]):
        data = dumps(view, store=store)
        assert store.usage()["used"] == used and len(data) < 1000
        back = loads(data)
        np.testing.assert_array_equal(back, view)
        assert back.strides == view.strides or not view.size
    thin = shared[:, ::100]
    np.testing.assert_array_equal(loads(dumps(thin, store=store, threshold=100)), thin)


def test_a_reference_is_loaded_once_and_holds_its_object_until_then(store: Store) -> None:
    shared = store.put_tensor("x", np.arange(LARGE))
    data = dumps(shared, store=store)
    store.delete("x")
    del shared
    assert leases(store) == 1
    back = loads(data)
    assert back.sum() == sum(range(LARGE)) and leases(store) == 1
    with pytest.raises(DissociatedError) as twice:
        loads(data)
    assert twice.value.code is Code.NOT_FOUND
    del back
    assert wait_until(lambda: leases(store) == 0)


def test_a_reference_that_nobody_loads_ends_after_its_time(store: Store) -> None:
    data = dumps(np.arange(LARGE), store=store, timeout=0.05)
    assert wait_until(lambda: store.usage()["leases"] == 0)
    with pytest.raises(DissociatedError) as late:
        loads(data)
    assert late.value.code is Code.NOT_FOUND


def test_a_reference_ends_with_its_sender(store: Store) -> None:
    script = """
import sys, time, numpy, dissociated
print(dissociated.dumps(numpy.arange(100_000), store=sys.argv[1]).hex(), flush=True)
time.sleep(600)
"""
    for patience in (True, False):
        sender = subprocess.Popen(
            [sys.executable, "-c", script, store.path], stdout=subprocess.PIPE, text=True
        )
        try:
            assert sender.stdout is not None
            data = bytes.fromhex(sender.stdout.readline())
            if patience:
                assert loads(data)[7] == 7
        finally:
            sender.send_signal(signal.SIGKILL)
            sender.wait()
            sender.stdout.close()  # type: ignore[union-attr]
        assert wait_until(lambda: leases(store) == 0)
        with pytest.raises(DissociatedError) as gone:
            loads(data)
        assert gone.value.code is Code.NOT_FOUND
    assert wait_until(lambda: store.usage()["used"] == 0)


def test_keeps_private_changes_of_tensors(store: Store) -> None:
    torch = pytest.importorskip("torch")
    shared = store.put_tensor("x", torch.zeros(LARGE))
    used = store.usage()["used"]
    untouched = dumps(shared, store=store)
    assert store.usage()["used"] == used, "by reference"
    shared[5] = 1
    changed = dumps(shared, store=store)
    assert store.usage()["used"] > used, "a copy"
    assert loads(untouched).sum() == 0
    back = loads(changed)
    assert back.sum() == 1 and back.dtype is shared.dtype
    back += 1
    assert shared[0] == 0
    assert loads(dumps(torch.ones(3), store=store)).tolist() == [1, 1, 1]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_pass_arrays_by_reference(store: Store, method: str) -> None:
    shared = store.put_tensor("x", np.arange(LARGE))
    used = store.usage()["used"]
    before = workers.registered()
    dissociated.init_reduction(store)
    try:
        with multiprocessing.get_context(method).Pool(2) as pool:
            for total, is_shared, process in pool.map(workers.look, [shared] * 8, chunksize=1):
                assert (total, is_shared) == (sum(range(LARGE)), True) and process != os.getpid()
            assert store.usage()["used"] == used, "nobody has copied it"
            back = pool.apply(workers.make, (LARGE,))
            assert back.sum() == 7 * LARGE and not back.flags.writeable
            assert workers.look(back)[1]
    finally:
        workers.restore(before)
    del shared, back
    assert wait_until(lambda: leases(store) == 0)


def test_a_queue_passes_arrays_to_a_spawned_process(store: Store) -> None:
    before = workers.registered()
    dissociated.init_reduction(store)
    try:
        context = multiprocessing.get_context("spawn")
        asks, answers = context.Queue(), context.Queue()
        process = context.Process(target=workers.serve, args=(asks, answers))
        process.start()
        for i in range(5):
            asks.put(np.full(LARGE, i))
            assert answers.get(timeout=LONGEST) == (i * LARGE, True)
        asks.put(None)
        process.join(LONGEST)
        assert process.exitcode == 0
        for queue in (asks, answers):
            queue.close()
            queue.join_thread()
    finally:
        workers.restore(before)
    assert wait_until(lambda: leases(store) == 0)


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_workers_of_a_torch_loader_pass_tensors_by_reference(store: Store, method: str) -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)  # a child that is forked later would wait for the others for ever
    shared = store.put_tensor("x", torch.arange(64 * 4096, dtype=torch.float32).reshape(64, -1))
    before = workers.registered()
    dissociated.init_reduction(store, threshold=4096)
    try:
        loader = DataLoader(
            workers.Rows(shared),
            batch_size=8,
            num_workers=2,
            multiprocessing_context=method,
            collate_fn=workers.stack,  # the default one uses torch's own shared memory
        )
        batches = list(loader)
    finally:
        workers.restore(before)
    assert torch.equal(torch.cat([rows for rows, _, _ in batches]), shared * 2)
    if method == "spawn":
        assert all(all(is_shared) for _, is_shared, _ in batches), "the data set was not copied"
    assert all(workers.is_view(rows) for rows, _, _ in batches), "nor was what they made of it"
    assert os.getpid() not in {process for _, _, processes in batches for process in processes}
    del batches, loader, shared
    assert wait_until(lambda: leases(store) == 0), store.usage()


# ---- events


def test_tells_of_names_that_come_and_go(store: Store) -> None:
    with store.subscribe("a/") as events:
        store.put("b", b"not asked for")
        store.put("a/1", b"x")
        store.put("a/1", np.arange(3), replace=True)
        store.delete("a/1")
        assert [tuple(events.next(LONGEST) or ()) for _ in range(3)] == [
            ("a/1", dissociated.store.ObjectType.BYTES, False),
            ("a/1", dissociated.store.ObjectType.TENSOR, False),
            ("a/1", dissociated.store.ObjectType.TENSOR, True),
        ]
        assert events.next(0.05) is None
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.extend(events))
        thread.start()
        store.put("a/2", b"x")
        assert wait_until(lambda: len(seen) == 1)
        time.sleep(0.1)
        events.close()
        thread.join(LONGEST)
        assert not thread.is_alive() and seen[0].name == "a/2"
