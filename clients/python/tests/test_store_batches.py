"""Many small puts in one go, ends of leases that wait for company, and what the daemon copies."""

from __future__ import annotations

import threading

import dissociated.store
import numpy as np
import pytest
from conftest import wait_until
from dissociated import DissociatedError
from dissociated.errors import Code


def test_puts_many_in_one_go(store: dissociated.store.Store) -> None:
    objects = {f"many/{i}": bytes([i % 256]) * (i % 200) for i in range(1000)}
    objects["many/large"] = bytes(100_000)
    store.put_many(objects)
    assert len(store.list("many/")) == len(objects)
    for name in ("many/0", "many/1", "many/999", "many/large"):
        assert bytes(store.get(name)) == objects[name]


def test_puts_the_others_where_one_fails(store: dissociated.store.Store) -> None:
    store.put("some/5", b"old")
    with pytest.raises(DissociatedError) as why:
        store.put_many({f"some/{i}": b"new" for i in range(300)})
    assert why.value.code is Code.ALREADY_EXISTS
    assert bytes(store.get("some/5")) == b"old"
    assert bytes(store.get("some/299")) == b"new"
    store.put_many({"some/5": b"newer"}, replace=True)
    assert bytes(store.get("some/5")) == b"newer"


def test_tells_of_ended_leases_without_another_request(store: dissociated.store.Store) -> None:
    store.put("held", bytes(100))
    with dissociated.store.connect(store.path) as other:
        held = [other.get("held") for _ in range(100)]
        assert store.usage()["leases"] == 100
        del held
        assert wait_until(lambda: store.usage()["leases"] == 0)
        last = other.get("held")
        other.close()
        assert store.usage()["leases"] == 1
        del last
        assert wait_until(lambda: store.usage()["leases"] == 0)


@pytest.mark.parametrize("size", [65_537, 3 << 20, 20_000_001])
def test_what_is_copied_is_what_was_put(store: dissociated.store.Store, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    store.put("bytes", memoryview(data))
    store.put("array", data)
    store.put("both", {"a": data, "b": data[::-1].copy()})
    before = data.copy()
    data[:] = 0
    assert np.array_equal(np.frombuffer(store.get("bytes"), np.uint8), before)
    assert np.array_equal(store.get("array"), before)
    both = store.get("both")
    assert np.array_equal(both["a"], before) and np.array_equal(both["b"], before[::-1])


def test_many_threads_put_large_arrays(store: dissociated.store.Store) -> None:
    arrays = [np.full(1 << 18, i) for i in range(8)]
    threads = [
        threading.Thread(target=store.put, args=(f"thread/{i}", arrays[i])) for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(8):
        assert np.array_equal(store.get(f"thread/{i}"), arrays[i])
