"""The examples that need nothing but Python and a daemon of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import LONGEST

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "share-objects"


def run(program: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(FOLDER / program), *arguments],
        capture_output=True,
        text=True,
        timeout=3 * LONGEST,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("daemon")
def test_two_processes_share_objects() -> None:
    producer = subprocess.Popen(
        [sys.executable, str(FOLDER / "producer.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert producer.stdout is not None
    try:
        path = producer.stdout.readline().split()[-1]
        assert run("consumer.py", path).splitlines() == [
            "1000000 temperatures, mean 9.5, writable: False",
            "on lease: 1",
            "on lease after the last view: 0",
            "squares: (1000, 1000), sum 332833500000",
        ]
    finally:
        producer.communicate("\n", LONGEST)
    assert producer.returncode == 0 and not Path(path).exists()


@pytest.mark.usefixtures("daemon")
def test_a_pool_shares_one_array() -> None:
    told = run("pool.py", "128", "3")
    assert "3 processes have summed 128 MiB" in told
    assert "the store has 128 MiB" in told
    own = re.search(r"own: (\d+) MiB", told)
    assert own and int(own[1]) < 100, told


@pytest.mark.usefixtures("daemon")
def test_workers_of_a_torch_loader_share_a_data_set() -> None:
    pytest.importorskip("torch")
    told = run("loader.py", "2000", "2")
    assert "2 workers have read 2000 rows of 23 MiB" in told
    assert "bytes copied for them: 0" in told
