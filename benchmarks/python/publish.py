"""Puts the tables that matter most, and the plot, of the last full run into README.md."""

from __future__ import annotations

import os
import re
import sys

BEGIN = "<!-- benchmark: begin (benchmarks/run --publish) -->"
END = "<!-- benchmark: end -->"
TABLES = (
    "Throughput: one int64 column, first column summed",
    "Hand-over of batches of 5 columns x 10,000 rows",
    "One row in an open stream, request and answer",
    "UCX over tcp: one int64 column, not looked at",
    "UCX over sm: one int64 column, not looked at",
    "UCX over tcp: one row in an open stream, request and answer",
    "UCX over sm: one row in an open stream, request and answer",
)


def sections(text: str) -> dict[str, str]:
    parts = re.split(r"^### (.*)\n", text, flags=re.MULTILINE)
    return {"": parts[0].strip(), **dict(zip(parts[1::2], map(str.strip, parts[2::2])))}


def main() -> None:
    results, readme = sys.argv[1:]
    with open(os.path.join(results, "results.md")) as file:
        found = sections(file.read())
    folder = os.path.relpath(results, os.path.dirname(readme))
    lines = [BEGIN]
    if os.path.exists(os.path.join(results, "summary.svg")):
        lines.append(f"![Throughput, hand-over and latency]({folder}/summary.svg)\n")
    lines.append(found[""] + "\n")
    for title in TABLES:
        if title in found:
            lines.append(f"**{title}**\n\n{found[title]}\n")
    store = os.path.join(results, "store.md")
    if os.path.exists(store):
        with open(store) as file:
            lines.append(f"**The store beside Plasma and vineyard** (`benchmarks/run store`)\n\n{file.read()}")
    lines.append(f"The rest, and every table: [{folder}/results.md]({folder}/results.md). Made by `benchmarks/run`.")
    lines.append(END)
    with open(readme) as file:
        text = file.read()
    if BEGIN not in text or END not in text:
        sys.exit(f"publish: {readme} has no place for it: {BEGIN} ... {END}")
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    with open(readme, "w") as file:
        file.write(before + "\n".join(lines) + after)


main()
