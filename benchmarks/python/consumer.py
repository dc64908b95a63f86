"""The Python consumer of the comparison; speaks the same lines as the Java one."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as fl

import dissociated

clients: dict[tuple[str, str], object] = {}
held: list[pa.RecordBatch] = []


def plain(uri: str) -> fl.FlightClient:
    return clients.setdefault((uri, "doget"), fl.FlightClient(uri))


def shared(request: dict) -> dissociated.Reader:
    key = request["uri"], request["metadata"]
    if key not in clients:
        clients[key] = dissociated.connect(key[0], via=request["via"], metadata=key[1])
    return clients[key].open(request["ticket"].encode())


def stream(request: dict) -> dict:
    add = request.get("sum", False)
    start = time.perf_counter()
    if request["metadata"] == "doget":
        reader = plain(request["uri"]).do_get(fl.Ticket(request["ticket"].encode()))
        batches = size = total = 0
        for chunk in iter_chunks(reader):
            batches += 1
            size = size or chunk.nbytes
            total += size
            if add:
                pc.sum(chunk.column(0)).as_py()
        return {"bytes": total, "batches": batches, "seconds": time.perf_counter() - start}
    with shared(request) as reader:
        for batch in reader:
            if add:
                pc.sum(batch.column(0)).as_py()
            batch = None
        seconds = time.perf_counter() - start
        counts = reader.statistics
        return {
            "bytes": counts.bytes,
            "batches": counts.batches,
            "seconds": seconds,
            "server_copied": counts.server_copied_bytes,
            "client_copied": counts.client_copied_bytes,
        }


def iter_chunks(reader):
    while True:
        try:
            yield reader.read_chunk().data
        except StopIteration:
            return


def hold(request: dict) -> dict:
    with shared(request) as reader:
        for batch in reader:
            held.append(batch)
            if request.get("sum", False):
                pc.sum(batch.column(0)).as_py()
        return {"bytes": reader.statistics.bytes, "batches": len(held)}


def read(request: dict) -> dict:
    size = done = 0
    start = time.perf_counter()
    while done < request["total"]:
        for batch in held:
            pc.sum(batch.column(0)).as_py()
            size = size or batch.nbytes
            done += size
    return {"bytes": done, "batches": len(held), "seconds": time.perf_counter() - start}


def drop(request: dict) -> dict:
    held.clear()
    return {}


def memcpy(request: dict) -> dict:
    source = np.ones(request["block"] // 8)
    target = np.zeros(request["block"] // 8)
    np.copyto(target, source)
    done = 0
    start = time.perf_counter()
    while done < request["total"]:
        np.copyto(target, source)
        done += request["block"]
    return {"bytes": done, "seconds": time.perf_counter() - start}


def opens(request: dict) -> dict:
    return timed(request, lambda: stream(request))


def timed(request: dict, action) -> dict:
    micros = []
    for i in range(request["warm"] + request["count"]):
        start = time.perf_counter()
        action()
        micros.append((time.perf_counter() - start) * 1e6)
    return {"micros": micros[request["warm"] :]}


def live(request: dict) -> dict:
    import socket

    with socket.socket(socket.AF_UNIX) as ping:
        ping.connect(request["ping"])
        ping.sendall(b"l")
        with shared(request) as reader:

            def trip() -> None:
                ping.send(b"\0")
                reader.read_next_batch()

            answer = timed(request, trip)
            ping.shutdown(socket.SHUT_WR)
            for _ in reader:
                pass
            return answer


def exchange(request: dict) -> dict:
    writer, reader = plain(request["uri"]).do_exchange(fl.FlightDescriptor.for_path("ping"))
    batch = pa.record_batch([pa.array([0])], names=["l0"])
    writer.begin(batch.schema)

    def trip() -> None:
        writer.write_batch(batch)
        reader.read_chunk()

    answer = timed(request, trip)
    writer.done_writing()
    writer.close()
    return answer


def memory(request: dict) -> dict:
    found = {}
    for file in ("/proc/self/status", "/proc/self/smaps_rollup"):
        with open(file) as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name in ("RssAnon", "RssShmem", "Pss", "Pss_Shmem", "Private_Dirty"):
                    found[name] = int(value.split()[0]) << 10
    return found


def main() -> None:
    operations = {
        f.__name__: f
        for f in (stream, hold, read, drop, memcpy, opens, live, exchange, memory)
    }
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = operations[request["op"]](request)
        except Exception as e:
            answer = {"error": f"{type(e).__name__}: {e}".replace("\n", "; ")}
        print(json.dumps(answer), flush=True)


main()
