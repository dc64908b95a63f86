"""What one process serves another reads equal, in place, and gives back exactly."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import Any

import data
import pandas as pd
import pyarrow as pa
import pytest
from conftest import LONGEST, ServerProcess, targets, wait_until

import dissociated
from dissociated import Code, DissociatedError
from dissociated.server import _leases

CASES = data.cases()


def test_reads_every_type_resident_and_live(client: dissociated.Client) -> None:
    for name, table in CASES.items():
        for kind in (name, f"live {name}"):
            with client.get(kind) as reader:
                found = reader.read_all()
                assert found.schema.equals(table.schema, check_metadata=True), kind
                assert found.num_rows == table.num_rows, kind
                assert found.equals(table) or name.startswith("type float"), kind
                found.validate(full=True)
                assert reader.ended
                assert reader.statistics.server_copied_bytes is not None


def test_bodies_are_read_in_place(client: dissociated.Client) -> None:
    before = pa.total_allocated_bytes()
    with client.get("numbers") as reader:
        batches = list(reader)
        assert reader.statistics.body_types == [1]
        assert reader.statistics.client_copied_bytes == 0
        assert reader.statistics.server_copied_bytes == 0
        assert pa.total_allocated_bytes() - before < 100_000
        assert pa.Table.from_batches(batches).equals(data.numbers())
        assert reader.statistics.rows == 100_000
        assert reader.statistics.batches == 10


def test_a_lease_ends_with_the_last_view(client: dissociated.Client, server: ServerProcess) -> None:
    with client.get("numbers") as reader:
        batches = list(reader)
    leased = server.leases()
    assert leased > 0
    slice_of_last = batches[-1].column("i").slice(17, 3)
    buffer = slice_of_last.buffers()[1]
    per_batch = leased // len(batches)
    for left in range(len(batches) - 1, 0, -1):
        batches.pop(0)
        assert wait_until(lambda left=left: server.leases() == left * per_batch)
    batches.clear()
    del slice_of_last
    assert server.leases() == per_batch, "one buffer keeps its batch"
    assert buffer.to_pybytes()[:8] == (90_000).to_bytes(8, "little")
    del buffer
    assert wait_until(lambda: server.leases() == 0)


def test_leases_end_on_any_thread_and_at_the_same_time(
    client: dissociated.Client, server: ServerProcess
) -> None:
    with client.get("numbers") as reader:
        batches = [[b] for b in reader]
    columns = [[b[0].column(i)] for b in batches for i in range(3)]
    threads = [threading.Thread(target=x.clear) for x in (*batches, *columns)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wait_until(lambda: server.leases() == 0)
    assert reader.outstanding == 0


def test_what_is_held_outlives_reader_and_client(server: ServerProcess) -> None:
    with dissociated.connect(server.uri) as client:
        batch = client.get("live numbers").read_next_batch()
    gc.collect()
    assert batch.equals(data.numbers().to_batches()[0])
    assert server.leases() > 0
    del batch
    assert wait_until(lambda: server.leases() == 0)


def test_reads_many_times_the_lease_limit_at_once(
    client: dissociated.Client, server: ServerProcess
) -> None:
    expected = data.numbers(batches=40, rows=50_000)
    with client.get("large") as reader:
        table = reader.read_all()
        assert table.equals(expected)
        assert reader.statistics.body_types == [0, 1], "the rest came as copies"
        assert reader.statistics.bytes > 30 << 20


@pytest.mark.parametrize("way", ["socket", "inline", "flight"])
def test_a_consumer_that_lets_go_gets_everything_in_place(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is, this consumer is not taken for one that keeps everything.
    monkeypatch.setattr(_leases, "_PATIENCE_SECONDS", LONGEST)
    table = data.numbers(batches=40, rows=50_000)
    with dissociated.serve({"large": table.to_reader}, lease_limit=8 << 20) as server:
        target, options = targets(server)[way]
        with dissociated.connect(target, **options) as client, client.get("large") as reader:
            rows = sum(batch.num_rows for batch in reader)
            assert rows == 2_000_000
            assert reader.statistics.body_types == [1]


def test_dictionaries_grow_and_are_replaced(client: dissociated.Client) -> None:
    expected = [b.column(0).to_pylist() for b in data.changing_dictionaries()]
    with client.get("dictionaries") as reader:
        batches = list(reader)
    assert [b.column(0).to_pylist() for b in batches] == expected


def test_custom_metadata_and_compressed_files_survive(tmp_path: object) -> None:
    batch = pa.record_batch({"x": list(range(1000))})
    path = f"{tmp_path}/f.arrow"
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(path, batch.schema, options=options) as writer:
        writer.write_batch(batch, custom_metadata={"k": "v"})
        writer.write_batch(batch)
    with dissociated.serve({"f": path}) as server:
        for target in (server.uri, server.socket):
            with dissociated.connect(target) as client, client.get("f") as reader:
                pair = reader.read_next_batch_with_custom_metadata()
                assert dict(pair.custom_metadata) == {b"k": b"v"}
                assert pair.batch.equals(batch)
                chunk = reader.read_chunk()
                assert chunk.data.equals(batch) and chunk.custom_metadata is None
                with pytest.raises(StopIteration):
                    reader.read_next_batch()
                del pair, chunk


def test_works_as_other_readers_do(client: dissociated.Client) -> None:
    expected = data.numbers()
    assert client.get("numbers").to_reader().read_all().equals(expected)
    assert pa.table(client.get("numbers")).equals(expected)
    assert client.read_all("numbers").equals(expected)
    pd.testing.assert_frame_equal(client.get("numbers").read_pandas(), expected.to_pandas())


def test_reads_without_blocking(client: dissociated.Client) -> None:
    async def rows(name: str) -> int:
        with client.get(name) as reader:
            return sum([batch.num_rows async for batch in reader])

    async def both() -> list[int]:
        return await asyncio.gather(rows("numbers"), rows("live numbers"), rows("slow"))

    assert asyncio.run(both()) == [100_000, 100_000, 100]


def test_waits_for_a_silent_source_as_long_as_the_server_lives(client: dissociated.Client) -> None:
    assert client.read_all("silent").to_pylist() == [{"x": 1}]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("no such name", Code.NOT_FOUND),
        ("missing file", Code.NOT_FOUND),
        ("failing at once", Code.INTERNAL),
    ],
)
def test_says_why_a_stream_cannot_be_opened(
    client: dissociated.Client, name: str, code: Code
) -> None:
    with pytest.raises(DissociatedError) as refused:
        client.get(name)
    assert refused.value.code is code


def test_a_source_that_breaks_gives_what_came_before_and_then_an_error(
    client: dissociated.Client,
) -> None:
    with client.get("failing later") as reader:
        assert reader.read_next_batch().to_pylist() == [{"x": 1}]
        for _ in range(2):
            with pytest.raises(DissociatedError, match="the source broke") as broken:
                reader.read_next_batch()
            assert broken.value.code is Code.INTERNAL


def test_closing_early_stops_the_producer(
    client: dissociated.Client, server: ServerProcess
) -> None:
    with client.get("slow") as reader:
        batch = reader.read_next_batch()
    assert batch.to_pylist() == [{"x": 0}]
    del batch
    assert wait_until(lambda: not server.stat()["streams"])


def test_lists_and_tells_who_holds_what(server: ServerProcess) -> None:
    for target in (server.socket, server.uri):
        with dissociated.connect(target) as client:
            names = [entry["name"] for entry in client.list()]
            assert "numbers" in names
            with client.get("numbers") as reader:
                batch = reader.read_next_batch()

                def holders(client: dissociated.Client = client) -> list[dict[str, Any]]:
                    return [s for s in client.stat()["streams"] if s["name"] == "numbers"]

                # What was sent is counted behind the sending.
                assert wait_until(lambda: all(s["bytes"] > 0 for s in holders()))
                found = holders()
                assert len(found) == 1
                assert found[0]["leases"] > 0
                assert found[0]["state"] in ("streaming", "draining")
                assert found[0]["pid"] == os.getpid()
                del batch
