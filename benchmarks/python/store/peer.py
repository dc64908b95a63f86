"""One process of the store's comparison: does with one store what it is told, line by line.

usage: peer.py dissociated|plasma|vineyard SOCKET. Runs wherever the oldest peer does, from Python 3.8 on.
"""

import json
import os
import sys
import time
import warnings

import numpy as np

warnings.filterwarnings("ignore")
now = time.perf_counter


class Dissociated:
    """This project's client."""

    def __init__(self, path):
        import dissociated.store

        self.store = dissociated.store.connect(path)

    def put(self, name, array):
        self.store.put(name, memoryview(array))

    def put_small(self, name, count):
        payload = bytes(64)
        for begin in range(0, count, 1000):
            self.store.put_many({name + str(i): payload for i in range(begin, min(begin + 1000, count))})

    def seal(self, name, size):
        """Fills an object where the store will keep it; how long the hand-over then takes."""
        with self.store.create(name, size // 8, "int64") as array:
            array[:] = 1
            start = now()
        return now() - start

    def get(self, name):
        return self.store.get_buffers(name)[0]

    def values(self, name):
        return np.frombuffer(self.get(name), dtype=np.int64)

    def put_table(self, name, table):
        self.store.put(name, table)

    def get_table(self, name):
        return self.store.get(name)

    def delete(self, name):
        self.store.delete(name)


class Plasma:
    """The store of pyarrow up to version 11. It has no tables: a stream of messages is put and read."""

    def __init__(self, path):
        import pyarrow
        import pyarrow.plasma

        self.arrow = pyarrow
        self.module = pyarrow.plasma
        self.client = pyarrow.plasma.connect(path, num_retries=50)

    def _id(self, name):
        return self.module.ObjectID(name.encode().ljust(20, b"_"))

    def put(self, name, array):
        buffer = self.client.create(self._id(name), array.nbytes)
        np.copyto(np.frombuffer(buffer, dtype=array.dtype), array)
        self.client.seal(self._id(name))

    def put_small(self, name, count):
        for i in range(count):
            self.client.create(self._id(name + str(i)), 64)
            self.client.seal(self._id(name + str(i)))

    def seal(self, name, size):
        buffer = self.client.create(self._id(name), size)
        np.frombuffer(buffer, dtype=np.int64)[:] = 1
        start = now()
        self.client.seal(self._id(name))
        return now() - start

    def get(self, name):
        return self.client.get_buffers([self._id(name)])[0]

    def values(self, name):
        return np.frombuffer(self.get(name), dtype=np.int64)

    def put_table(self, name, table):
        size = self.arrow.MockOutputStream()
        with self.arrow.ipc.new_stream(size, table.schema) as writer:
            writer.write_table(table)
        buffer = self.client.create(self._id(name), size.size())
        with self.arrow.ipc.new_stream(self.arrow.FixedSizeBufferWriter(buffer), table.schema) as writer:
            writer.write_table(table)
        self.client.seal(self._id(name))

    def get_table(self, name):
        return self.arrow.ipc.open_stream(self.get(name)).read_all()

    def delete(self, name):
        self.client.delete([self._id(name)])


class Vineyard:
    """vineyard's client. It names objects itself, so names are kept here and passed on by the driver."""

    def __init__(self, path):
        import vineyard

        self.module = vineyard
        self.client = vineyard.connect(path)
        self.ids = {}

    def _id(self, name):
        return self.ids[name]

    def put(self, name, array):
        self.ids[name] = self.client.put(array)

    def put_small(self, name, count):
        for i in range(count):
            self.ids[name + str(i)] = self.client.create_blob(64).seal(self.client).id

    def seal(self, name, size):
        blob = self.client.create_blob(size)
        np.frombuffer(memoryview(blob), dtype=np.int64)[:] = 1
        start = now()
        self.ids[name] = blob.seal(self.client).id
        return now() - start

    def get(self, name):
        return self.client.get(self._id(name))

    def values(self, name):
        return np.asarray(self.get(name))

    def put_table(self, name, table):
        self.ids[name] = self.client.put(table)

    def get_table(self, name):
        return self.get(name)

    def delete(self, name):
        self.client.delete(self.ids.pop(name), force=True, deep=True)


KINDS = {"none": lambda path: None, "dissociated": Dissociated, "plasma": Plasma, "vineyard": Vineyard}


class Peer:
    """Operations on a store; each answers what it has measured, in seconds."""

    def __init__(self, store):
        self.store = store
        self.kept = []
        self.arrays = {}

    def _array(self, size):
        if size not in self.arrays:
            self.arrays = {size: np.arange(size // 8)}
        return self.arrays[size]

    def put(self, name, size, count, delete=True):
        array, seconds = self._array(size), []
        for i in range(count):
            start = now()
            self.store.put(name + str(i), array)
            seconds.append(now() - start)
            if delete:
                self.store.delete(name + str(i))
                time.sleep(0 if size < 1 << 28 else 0.2)
        return {"seconds": seconds}

    def fill(self, name, count):
        start = now()
        self.store.put_small(name, count)
        return {"seconds": [now() - start]}

    def seal(self, name, size, count, delete=True):
        seconds = []
        for i in range(count):
            seconds.append(self.store.seal(name + str(i), size))
            if delete:
                self.store.delete(name + str(i))
        return {"seconds": seconds}

    def get(self, name, count, warm=0):
        seconds = []
        for i in range(-warm, count):
            start = now()
            got = self.store.get(name)
            if i >= 0:
                seconds.append(now() - start)
            del got
        return {"seconds": seconds}

    def first(self, names):
        """The first get of each: of memory that this process has not mapped yet."""
        seconds = []
        for name in names:
            start = now()
            self.kept.append(self.store.get(name))
            seconds.append(now() - start)
        self.kept.clear()
        return {"seconds": seconds}

    def table(self, name, rows, count):
        import pyarrow as pa

        table = pa.table({"x": np.arange(rows), "y": np.arange(rows) * 0.5})
        puts, gets = [], []
        for i in range(count):
            start = now()
            self.store.put_table(name + str(i), table)
            puts.append(now() - start)
            start = now()
            got = self.store.get_table(name + str(i))
            gets.append(now() - start)
            del got
            self.store.delete(name + str(i))
        return {"puts": puts, "gets": gets}

    def hold(self, name):
        values = self.store.values(name)
        self.kept.append(values)
        return {"sum": int(values.sum())}

    def delete(self, names):
        for name in names:
            self.store.delete(name)
        return {}

    def ids(self, known=None):
        """vineyard's names for names: asked of one process, and told to others."""
        if known is not None:
            self.store.ids = {name: self.store.module.ObjectID(value) for name, value in known.items()}
        return {"ids": {name: repr(value) for name, value in getattr(self.store, "ids", {}).items()}}

    def memcpy(self, size):
        array = self._array(size)
        to = np.ones(size // 8, dtype=np.int64)
        seconds = []
        for _ in range(4):
            start = now()
            np.copyto(to, array)
            seconds.append(now() - start)
        return {"seconds": seconds[1:]}


def main():
    kind, path = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    peer = Peer(KINDS[kind](path))
    answers.write("{}\n")
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(peer, request.pop("op"))(**request)
        except Exception as error:  # the driver goes on without it
            answer = {"error": type(error).__name__ + ": " + str(error)[:300]}
        answers.write(json.dumps(answer) + "\n")
    os._exit(0)


main()
