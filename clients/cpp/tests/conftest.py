"""What the tests of the C++ peer share: the programs, tables, and processes that do not outlive a test."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from pathlib import Path

import pyarrow as pa
import pytest

ROOT = Path(__file__).resolve().parents[3]
BUILD = Path(os.environ.get("DISSOCIATED_CPP_BUILD", ROOT / ".build" / "cpp"))
PROGRAM = BUILD / "dissociated-cpp"
# Seconds after which something hangs; nothing is expected to take that long.
LONGEST = 60

LANES = {"tcp": "tcp", "sm": "sm,tcp,self"}


def environment(lanes: str) -> dict[str, str]:
    return {**os.environ, "UCX_TLS": LANES[lanes], "UCX_HANDLE_ERRORS": "none", "UCX_LOG_LEVEL": "fatal"}


def run(lanes: str, *words: str, longest: float = LONGEST) -> subprocess.CompletedProcess[str]:
    """One command, to its end."""
    return subprocess.run(
        [str(PROGRAM), *map(str, words)],
        env=environment(lanes),
        capture_output=True,
        text=True,
        timeout=longest,
        check=False,
    )


class Served:
    """A running ``serve``."""

    def __init__(self, lanes: str, *words: str) -> None:
        self.process = subprocess.Popen(
            [str(PROGRAM), "serve", *map(str, words)],
            env=environment(lanes),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._collect, daemon=True).start()
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(LONGEST)
            raise AssertionError(f"serve ended: {self.error()}")
        self.listening = json.loads(line)

    def _collect(self) -> None:
        for line in self.process.stderr:
            self.errors.put(line)

    @property
    def locations(self) -> list[str]:
        return self.listening["locations"]

    def error(self) -> str:
        """The next line of standard error."""
        return self.errors.get(timeout=LONGEST).strip()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(LONGEST)


@pytest.fixture
def serve():
    """Starts servers, which end with the test; one that crashed fails it."""
    servers: list[Served] = []

    def start(lanes: str, *words: str) -> Served:
        servers.append(Served(lanes, *words))
        return servers[-1]

    yield start
    codes = []
    for server in servers:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            codes.append(server.process.wait(LONGEST))
        if server.process.poll() is None:
            server.process.kill()
            codes.append("hangs")
    assert all(code in (0, -signal.SIGKILL) for code in codes), codes


def numbers(batches: int, rows: int) -> pa.Table:
    """Columns of several kinds, with nulls, in that many batches."""
    made = []
    for i in range(batches):
        first = i * rows
        made.append(
            pa.record_batch(
                {
                    "n": pa.array(range(first, first + rows), pa.int64()),
                    "odd": pa.array([(k % 3) or None for k in range(rows)], pa.int8()),
                    "text": pa.array([f"row {first + k}" * (k % 3) for k in range(rows)]),
                    "list": pa.array([[k] * (k % 4) for k in range(rows)]),
                    "flag": pa.array([k % 2 == 0 for k in range(rows)]),
                }
            )
        )
    return pa.Table.from_batches(made)


def dictionary() -> pa.Table:
    words = pa.array(["red", "green", None, "blue", "green"] * 100).dictionary_encode()
    return pa.table({"colour": words, "n": pa.array(range(500))})


def changing_dictionary(path: Path) -> None:
    """A stream whose dictionary is replaced between batches."""
    kind = pa.schema({"word": pa.dictionary(pa.int32(), pa.string())})
    with pa.ipc.new_stream(path, kind) as writer:
        for values in (["a", "b"], ["c", "d", "e"], ["a"]):
            writer.write_batch(pa.record_batch([pa.array(values).dictionary_encode()], schema=kind))


def empty() -> pa.Table:
    return pa.schema({"n": pa.int32(), "s": pa.string()}).empty_table()


def rowless_batch(path: Path) -> None:
    """A batch without rows, whose body is empty, and one behind it."""
    kind = pa.schema({"n": pa.int32()})
    with pa.ipc.new_file(path, kind) as writer:
        writer.write_batch(pa.record_batch([pa.array([], pa.int32())], schema=kind))
        writer.write_batch(pa.record_batch([pa.array([1, 2], pa.int32())], schema=kind))


def wide() -> pa.Table:
    """Metadata of more than 144 KB, in the schema and in each batch."""
    return pa.table({f"a column with a rather long name, number {i}": [i, i + 1] for i in range(3000)})


def large() -> pa.Table:
    """Bodies of 8 MiB, which come by rendezvous."""
    values = pa.array(range(1 << 20), pa.int64())
    return pa.Table.from_batches([pa.record_batch({"n": values})] * 4)


TABLES = {
    "numbers": lambda: numbers(7, 1000),
    "dictionary": dictionary,
    "empty": empty,
    "wide": wide,
    "large": large,
}


def write(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("tables")
    out = {}
    for name, make in TABLES.items():
        out[name] = folder / f"{name}.arrow"
        write(make(), out[name])
    out["changing"] = folder / "changing.arrows"
    changing_dictionary(out["changing"])
    out["rowless"] = folder / "rowless.arrow"
    rowless_batch(out["rowless"])
    return out


def read(path: Path) -> list[pa.RecordBatch]:
    """All batches of a file or a stream."""
    with pa.memory_map(str(path)) as source:
        try:
            reader = pa.ipc.open_file(source)
            return [reader.get_batch(i) for i in range(reader.num_record_batches)]
        except pa.ArrowInvalid:
            source.seek(0)
            return list(pa.ipc.open_stream(source))
