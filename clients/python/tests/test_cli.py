"""``python -m dissociated``: words, JSON and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import data
import pyarrow as pa
import pytest
from conftest import LONGEST, ServerProcess

import dissociated

REPORT = {
    "name", "via", "metadata", "batches", "rows", "bytes", "body_types", "server_copied_bytes",
    "client_copied_bytes", "seconds", "mb_per_s",
}  # fmt: skip


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dissociated", *arguments],
        capture_output=True,
        text=True,
        timeout=LONGEST,
        check=False,
    )


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    table = data.numbers()
    with pa.ipc.new_file(str(folder / "n.arrow"), table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(str(folder / "n.arrows"), table.schema) as writer:
        writer.write_table(table)
    whole = (folder / "n.arrow").read_bytes()
    (folder / "cut.arrow").write_bytes(whole[: len(whole) // 2])
    (folder / "text.arrow").write_text("this is not Arrow")
    return folder


@pytest.fixture(scope="module")
def served(files: Path) -> Iterator[ServerProcess]:
    names = {"n": "n.arrow", "s": "n.arrows", "cut": "cut.arrow", "text": "text.arrow"}
    entries = [f"{name}={files / file}" for name, file in names.items()]
    server = ServerProcess("-m", "dissociated", "serve", *entries)
    yield server
    server.stop()
    assert server.process.returncode == 0, "SIGTERM ends it well"


def test_says_where_it_listens(served: ServerProcess) -> None:
    assert set(served.ready) == {"event", "pid", "flight", "socket", "transports"}
    assert served.ready["event"] == "listening"
    assert served.ready["pid"] == served.process.pid
    assert served.ready["transports"] == ["shm"]


@pytest.mark.parametrize("name", ["n", "s"])
@pytest.mark.parametrize("via", ["shm", "flight", "auto"])
@pytest.mark.parametrize("metadata", ["flight", "inline"])
def test_gets_a_stream_into_a_file(
    served: ServerProcess, tmp_path: Path, name: str, via: str, metadata: str
) -> None:
    output = tmp_path / "out.arrow"
    options = ("--via", via, "--metadata", metadata, "--output", str(output), "--json")
    done = run("get", served.uri, name, *options)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) == REPORT
    assert report["name"] == name and report["rows"] == 100_000
    assert report["via"] == ("flight" if via == "flight" else "shm")
    assert pa.ipc.open_file(str(output)).read_all().equals(data.numbers())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.arrow"]


def test_gets_by_socket_ticket_and_to_stdout(served: ServerProcess) -> None:
    assert json.loads(run("get", served.socket, "n", "--json").stdout)["metadata"] == "inline"
    assert json.loads(run("get", served.uri, "--ticket", "n", "--json").stdout)["rows"] == 100_000
    assert json.loads(run("get", served.uri, "--command", "n", "--json").stdout)["rows"] == 100_000
    done = subprocess.run(
        [sys.executable, "-m", "dissociated", "get", served.socket, "n", "--output", "-"],
        capture_output=True,
        timeout=LONGEST,
        check=True,
    )
    assert pa.ipc.open_stream(done.stdout).read_all().equals(data.numbers())


def test_lists_and_tells(served: ServerProcess) -> None:
    for target in (served.uri, served.socket):
        names = [json.loads(x)["name"] for x in run("list", target, "--json").stdout.splitlines()]
        assert {"n", "s"} <= set(names)
        assert json.loads(run("stat", target, "--json").stdout)["streams"] == []
        assert run("list", target).returncode == 0
        assert run("stat", target).returncode == 0


def test_writes_a_stream_where_a_file_cannot_hold_the_dictionaries(
    server: ServerProcess, tmp_path: Path
) -> None:
    refused = run("get", server.socket, "dictionaries", "--output", str(tmp_path / "d.arrow"))
    assert refused.returncode == 1
    assert list(tmp_path.iterdir()) == []
    output = tmp_path / "d.arrows"
    assert run("get", server.socket, "dictionaries", "--output", str(output)).returncode == 0
    expected = [b.column(0).to_pylist() for b in data.changing_dictionaries()]
    with pa.ipc.open_stream(str(output)) as stream:
        assert [b.column(0).to_pylist() for b in stream] == expected


@pytest.mark.parametrize(
    ("code", "arguments"),
    [
        (1, ("get", "{uri}", "no such name")),
        (1, ("get", "{socket}", "no such name")),
        (1, ("get", "{uri}", "cut")),
        (1, ("get", "{socket}", "text")),
        (1, ("get", "grpc://127.0.0.1:1", "n")),
        (1, ("get", "/nowhere", "n")),
        (1, ("get", "{uri}", "n", "--output", "/nowhere/out.arrow")),
        (1, ("serve", "x=/nowhere")),
        (2, ("get", "{uri}")),
        (2, ("get", "{uri}", "n", "--header", "x")),
        (2, ("get", "{uri}", "n", "--tls-root", "/nowhere")),
        (2, ("get", "{socket}", "n", "--via", "flight")),
        (2, ("get", "{uri}", "n", "--via", "pigeon")),
        (2, ("serve", "nonsense")),
        (2, ("unknown",)),
    ],
)
def test_fails_with_one_line(served: ServerProcess, code: int, arguments: tuple[str, ...]) -> None:
    filled = [a.format(uri=served.uri, socket=served.socket) for a in arguments]
    done = run(*filled)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    if done.stderr.startswith("dissociated:"):
        assert done.stderr.count("\n") == 1
        assert "code=" in done.stderr


def test_terminated_while_reading_it_ends_well(server: ServerProcess) -> None:
    command = [sys.executable, "-m", "dissociated", "get", server.socket, "stuck"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        while not any(c["pid"] == process.pid for c in server.stat()["streams"]):
            assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(LONGEST) == 0


def test_names_are_those_of_the_package() -> None:
    assert {"connect", "serve", "Client", "Reader", "Server"} <= set(dissociated.__all__)
