"""The codecs against the vectors that all implementations share."""

from __future__ import annotations

import json
import subprocess

import pytest
from conftest import BUILD, ROOT

VECTORS = ROOT / "format-docs" / "vectors"
KINDS = ("metadata-message", "body-tag", "buffer-list", "free-list", "uri")


def load() -> list[dict]:
    return [vector for kind in KINDS for vector in json.loads((VECTORS / f"{kind}.json").read_text())]


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str], dict]:
    vectors = load()
    lines = "".join(f"{v['kind']} {v['text'] if 'text' in v else v['hex']}\n" for v in vectors)
    done = subprocess.run(
        [str(BUILD / "wire-probe")], input=lines, capture_output=True, text=True, timeout=60, check=True
    )
    out = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(out) == len(vectors)
    return {(v["kind"], v["name"]): answer for v, answer in zip(vectors, out)}


@pytest.mark.parametrize("vector", load(), ids=lambda v: f"{v['kind']}/{v['name']}")
def test_should_read_and_write_as_the_vector_says(vector, answers):
    answer = answers[vector["kind"], vector["name"]]
    if "error" in vector:
        assert answer == {"error": vector["error"]}
        return
    assert "error" not in answer
    for key, value in vector["expect"].items():
        if key == "canonical":  # of those who write any location
            continue
        if key == "parameters":
            assert value.items() <= answer[key].items()
        else:
            assert answer[key] == value, key
    if "hex" in vector and not vector["name"].endswith("-ignored"):
        assert answer["hex"] == vector["hex"]
