"""What the README says of the store, run as a reader would run it, in order."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import LONGEST

ROOT = Path(__file__).resolve().parents[3]
PRELUDE = """
import numpy, pyarrow
frame = {"numbers": numpy.arange(1000), "text": ["a", "b"]}
weights = numpy.ones((300, 300))
table = pyarrow.table({"x": [1, 2, 3]})
"""
"""The names that the README's Python takes for given."""


def blocks() -> list[tuple[str, str]]:
    """The examples of the store's section: their language and their text."""
    text = (ROOT / "README.md").read_text("utf-8")
    section = text[text.index("\n### The store") : text.index("\n## How it works")]
    return re.findall(r"^```(\w+)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Terminals:
    """A folder like a checkout, and what has been started in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("dissociated", "examples", "README.md"):
            (folder / name).symlink_to(ROOT / name)
        # What must be another's on a machine where others work too.
        self.changes = {
            "/tmp/store.sock": str(folder / "store.sock"),
            "/run/store/s.sock": str(folder / "s.sock"),
            "/shared/s.sock": str(folder / "s.sock"),
            "10.0.0.7": "127.0.0.1",
            "0.0.0.0": "127.0.0.1",
            "47470": str(free_port()),
        }
        self.daemons: list[subprocess.Popen[str]] = []
        self.waiting: list[subprocess.Popen[str]] = []

    def here(self, text: str) -> str:
        for theirs, ours in self.changes.items():
            text = text.replace(theirs, ours)
        return text

    def start(self, command: str) -> subprocess.Popen[str]:
        # Replaced by the program, so that it is the program that a signal reaches.
        line = command if command.startswith(("(", "echo")) else "exec " + command
        return subprocess.Popen(
            ["bash", "-c", line],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, command: str) -> str:
        """Runs a line; what it printed. A daemon goes on, and so does what waits for something."""
        command = self.here(re.sub(r"\s+# .*$", "", command))
        started = self.start(command.removesuffix("&"))
        if " serve " in command:
            self.daemons.append(started)
            assert started.stdout is not None
            assert select.select([started.stdout], [], [], LONGEST)[0], "it does not start"
            return started.stdout.readline()
        if command.endswith("&"):
            self.waiting.append(started)
            return ""
        return self.end(started)

    @staticmethod
    def end(program: subprocess.Popen[str]) -> str:
        out, err = program.communicate(timeout=2 * LONGEST)
        assert program.returncode == 0, (program.args, err)
        assert not err, (program.args, err)
        return out

    def close(self) -> None:
        for daemon in self.daemons:
            daemon.terminate()
        for program in self.daemons + self.waiting:
            with contextlib.suppress(subprocess.TimeoutExpired):
                program.communicate(timeout=LONGEST)
            if program.poll() is None:
                program.kill()
                program.communicate()


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[Terminals]:
    opened = Terminals(tmp_path)
    yield opened
    opened.close()


@pytest.mark.slow
@pytest.mark.usefixtures("daemon")
def test_every_command_of_the_stores_section_works(terminals: Terminals) -> None:
    printed: dict[str, str] = {}
    for language, text in blocks():
        if language == "console":
            for line in text.splitlines():
                assert line.startswith("$ "), line
                printed[line] = terminals.type(line[2:])
        elif language == "python":
            code = PRELUDE + terminals.here(text)
            done = subprocess.run(
                [sys.executable, "-c", code],
                cwd=terminals.folder,
                capture_output=True,
                text=True,
                timeout=2 * LONGEST,
                check=False,
            )
            assert done.returncode == 0, (text, done.stderr)
        else:
            assert language == "java"  # see ReadmeTest of the module tests
    assert [terminals.end(program) for program in terminals.waiting] == ["42\n"]
    lists = [out for line, out in printed.items() if "dissociated list" in line]
    assert len(lists) == 3 and "flights" in lists[0] and "remote" in lists[2]
    assert (terminals.folder / "flights.arrow").stat().st_size > 1_000_000
    assert (terminals.folder / "token").stat().st_mode & 0o777 == 0o600
    store = terminals.here("/tmp/store.sock")
    names = terminals.type(f"./dissociated list {store}")
    for name in ("flights", "frame", "weights", "array", "remote", "result"):
        assert re.search(rf"^{name} ", names, re.MULTILINE), names
    assert not re.search(r"^notes ", names, re.MULTILINE)
    for daemon in terminals.daemons:
        daemon.terminate()
    assert [daemon.wait(LONGEST) for daemon in terminals.daemons] == [0, 0, 0]
