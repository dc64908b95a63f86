"""What each end makes of a peer that breaks the protocol: one clear line in bounded time, and no crash."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import LANES, run

SERVER_FAULTS = {
    "duplicate": "duplicate",
    "duplicate-body": "duplicate",
    "reserved-bits": "reserved bits",
    "shift-55": "reserved bits",
    "unknown-type": "unknown type",
    "bad-eos": "shorter than its prefix",
    "long-eos": "not 5 bytes",
    "early-eos": "end-of-stream refused",
    "die-midway": "stream broken",
    "close-midway": "stream broken",
    "short-body": "another length",
    "long-body": "another length",
    "garbage-metadata": "not an Arrow message",
    "short-prefix": "shorter than its prefix",
    "unknown-message": "unknown type",
    "no-schema": "schema comes first",
    "body-of-schema": "its metadata has none",
    "type1-list": "no remote_handle",
    "error": "producer failed: on purpose",
}
# Those who let their client wait: what it says when it waits no longer.
SILENCES = {
    "gap": "missing=metadata",
    "late-eos": "missing=metadata",
    "no-eos": "end=not-received",
    "silent": "nothing heard",
    "silent-midway": "nothing heard",
    "no-body": "missing=body",
}
LATE = {"early-eos": "duplicate or out of range", "body-of-schema": "duplicate or out of range"}
CLIENT_FAULTS = {
    "garbage-want-data": "no such stream",
    "truncated-want-data": "no such stream",
    "long-want-data": "too long",
    "unknown-tag": "unknown tag",
    "double-want-data": "one stream per connection",
    "die-midway": "",
    "close-midway": "",
    "garbage-free-data": "not a list of addresses",
    "unknown-free-data": "unknown_frees=1",
}


@pytest.mark.parametrize("form", ["--pair", "--inline"])
@pytest.mark.parametrize("fault", SERVER_FAULTS)
@pytest.mark.parametrize("lanes", LANES)
def test_should_say_what_a_server_did_wrong(lanes, fault, form, serve, files):
    server = serve(lanes, form, "--fault", fault, f"numbers={files['numbers']}")
    done = run(lanes, "get", *server.locations, "numbers", "--json")
    assert done.returncode == 1, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    # Which of two wrong things is met first can depend on which of two connections is faster.
    expected = [SERVER_FAULTS[fault], LATE.get(fault, SERVER_FAULTS[fault])]
    assert any(text in done.stderr for text in expected), done.stderr


@pytest.mark.parametrize("form", ["--pair", "--inline"])
@pytest.mark.parametrize("lanes", LANES)
def test_should_wait_for_a_silent_server_so_long_and_no_longer(lanes, form, serve, files):
    """All at once, since each only waits; and so long that a busy machine is not taken for a silent server."""
    servers = {fault: serve(lanes, form, "--fault", fault, f"numbers={files['numbers']}") for fault in SILENCES}

    def get(fault):
        return run(lanes, "get", *servers[fault].locations, "numbers", "--json", "--timeout", "4")

    with ThreadPoolExecutor(len(servers)) as pool:
        answers = dict(zip(servers, pool.map(get, servers)))
    for fault, done in answers.items():
        assert (done.returncode, done.stdout) == (1, ""), (fault, done)
        assert len(done.stderr.splitlines()) == 1, (fault, done.stderr)
        assert SILENCES[fault] in done.stderr, (fault, done.stderr)
        assert "nothing heard for" in done.stderr, (fault, done.stderr)


@pytest.mark.parametrize("fault", ["type1-bad-count", "type1-short"])
def test_should_say_what_is_wrong_with_a_list(fault, serve, files):
    server = serve("tcp", "--by-reference", "each", "--fault", fault, f"numbers={files['numbers']}")
    done = run("tcp", "get", *server.locations, "numbers")
    assert done.returncode == 1
    assert "buffer list refused" in done.stderr


@pytest.mark.parametrize("fault", CLIENT_FAULTS)
@pytest.mark.parametrize("lanes", LANES)
def test_should_survive_a_bad_client_and_serve_the_next(lanes, fault, serve, files):
    by_reference = ["--by-reference", "each"] if "free" in fault else []
    server = serve(lanes, "--inline", "--verbose", *by_reference, f"numbers={files['numbers']}")
    done = run(lanes, "get", *server.locations, "numbers", "--fault", fault)
    assert done.returncode in (0, 1, -9)
    assert CLIENT_FAULTS[fault] in server.error()
    done = run(lanes, "get", *server.locations, "numbers", "--json")
    assert json.loads(done.stdout)["batches"] == 7


@pytest.mark.parametrize("fault", ["connect-only", "never-receives"])
def test_should_serve_others_while_a_client_does_nothing(fault, serve, files):
    server = serve("tcp", "--inline", f"large={files['large']}")
    done = run("tcp", "get", *server.locations, "large", "--fault", fault, "--timeout", "1")
    assert done.returncode == 1
    done = run("tcp", "get", *server.locations, "large")
    assert done.returncode == 0, done.stderr


def test_should_tell_why_a_stream_is_refused(serve, files):
    for form in ("--pair", "--inline"):
        server = serve("tcp", form, f"numbers={files['numbers']}")
        done = run("tcp", "get", *server.locations, "nobody")
        assert done.returncode == 1
        assert "no such stream: name=nobody code=NOT_FOUND" in done.stderr
