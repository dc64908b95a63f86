"""Python objects that are damaged, or cannot be made here: one clear error each."""

from __future__ import annotations

import gc
import pickle
import random
from typing import Any

import numpy as np
import pytest
from conftest import run_script, wait_until

from dissociated import Code, DissociatedError
from dissociated._pickling import dump_parts
from dissociated.store import ObjectType, Store

VALUE = {"array": np.arange(30_000), "list": [1, "two", 3.0], "small": np.ones((2, 3))}


def put_parts(store: Store, parts: list[Any]) -> None:
    store._put_parts("x", ObjectType.PICKLE, parts, {"flags": 1, "a": 0})


def refused(store: Store, parts: list[Any]) -> DissociatedError:
    put_parts(store, parts)
    with pytest.raises(DissociatedError) as told:
        store.get("x")
    assert "\n" not in told.value.message and told.value.message.endswith(", name=x")
    return told.value


def test_refuses_pickles_that_are_cut(store: Store) -> None:
    head, *buffers = (bytes(part) for part in dump_parts(VALUE))
    assert len(buffers) == 2
    for length in range(len(head)):
        assert refused(store, [head[:length], *buffers]).code is Code.DATA_CORRUPT
    put_parts(store, [head, *buffers])
    assert store.get("x")["list"] == VALUE["list"]


def test_refuses_pickles_with_a_damaged_header(store: Store) -> None:
    head, *buffers = (bytes(part) for part in dump_parts(VALUE))
    assert head[:2] == b"\x80\x05" and head[2:3] == b"\x95"  # PROTO 5, FRAME
    for damaged in (
        b"\x80\x09" + head[2:],
        b"\x00\x05" + head[2:],
        head[:3] + (1 << 62).to_bytes(8, "little") + head[11:],
        b"",
        bytes(100),
        b"\n" * 20,
    ):
        assert refused(store, [damaged, *buffers]).code is Code.DATA_CORRUPT


def test_refuses_pickles_whose_buffers_are_not_theirs(store: Store) -> None:
    head, large, small = (bytes(part) for part in dump_parts(VALUE))
    for buffers in (
        [],
        [large],
        [small, large],
        [large[:-8], small],
        [large + bytes(8), small],
        [b"", b""],
        [large[:-1], small],
    ):
        assert refused(store, [head, *buffers]).code is Code.DATA_CORRUPT, list(map(len, buffers))


class Elsewhere:
    """Of a class that goes before it is unpickled."""


class Fragile:
    """Whose own code fails when it is unpickled."""

    def __reduce__(self) -> Any:
        return int, ("not a number\nat all",)


class Large:
    """More than any process may have."""

    def __reduce__(self) -> Any:
        return bytearray, (1 << 62,)


def test_tells_what_cannot_be_made_here(store: Store) -> None:
    for gone in (b"cno_such_module\nName\n.", b"cdissociated\nno_such_name\n."):
        told = refused(store, [b"\x80\x05" + gone])
        assert told.code is Code.UNSUPPORTED and "no_such" in told.message
        assert isinstance(told.__cause__, (ImportError, AttributeError))
    told = refused(store, [pickle.dumps(Fragile(), 5)])
    assert told.code is Code.DATA_CORRUPT and "ValueError" in told.message
    told = refused(store, [pickle.dumps(Large(), 5)])
    assert told.code is Code.RESOURCE_EXHAUSTED
    del told
    gc.collect()


def test_tells_of_damaged_pickles_or_reads_something_else(store: Store) -> None:
    """Python's pickle and numpy's types may crash on some, so that this is done by children.

    Their memory is limited, since a pickle may ask for any amount.
    """
    seed = random.randrange(1 << 32)
    print("seed of the damage:", seed)
    script = """
        import os, random, resource, signal, sys
        import numpy as np
        import dissociated.store
        from dissociated import DissociatedError
        from dissociated._pickling import dump_parts
        from dissociated.store import ObjectType
        value = {"array": np.arange(3000), "list": [1, "two", 3.0], "small": np.ones((2, 3))}
        whole = [bytes(part) for part in dump_parts(value)]

        def read_damaged(store):
            told = 0
            for _ in range(25):
                head = bytearray(whole[0])
                for _ in range(random.randrange(1, 4)):
                    head[random.randrange(len(head))] = random.randrange(256)
                parts = [head, *whole[1:]]
                store._put_parts("x", ObjectType.PICKLE, parts, {"flags": 1, "a": 0})
                try:
                    store.get("x")
                except DissociatedError as e:
                    assert "\\n" not in e.message, e
                    told += 1
            return told

        resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
        ends = []
        for chunk in range(40):
            random.seed(int(sys.argv[2]) + chunk)
            child = os.fork()
            if child == 0:
                code = 200
                try:
                    with dissociated.store.connect(sys.argv[1]) as store:
                        code = read_damaged(store)
                finally:
                    os._exit(code)
            ends.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        told = [end for end in ends if end >= 0]
        assert max(told) <= 25, ends
        assert all(end in (-signal.SIGSEGV, -signal.SIGABRT) for end in ends if end < 0), ends
        assert len(told) >= 20 and sum(told) >= 100, ends
        print("well")
    """
    assert run_script(script, store.path, str(seed)) == "well"
    # Whatever became of its readers, the daemon goes on, and nothing is on lease.
    assert wait_until(lambda: store.usage()["leases"] == 0)
    store.put("after", b"x")
    assert bytes(store.get("after")) == b"x"
