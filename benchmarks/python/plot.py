"""Draws results.json as SVG: a summary for the README, throughput by batch size, and small batches."""

from __future__ import annotations

import json
import os
import sys

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

plt.rcParams["svg.fonttype"] = "none"  # text stays text: a tenth of the size

OURS, PEERS, MACHINE = "#0072b2", "#d55e00", "#777777"

SUMMARY = (
    ("Throughput: one int64 column, first column summed", "16 MiB", "GB/s, 16 MiB batches, summed"),
    ("Hand-over of batches of 5 columns x 10,000 rows", "batches/s", "batches/s, 5 x 10,000"),
    ("One row in an open stream, request and answer", "p50", "us for one row and back, p50"),
)


def colour(row: str) -> str:
    if "Flight" in row:
        return PEERS
    return MACHINE if "plain read" in row or "socket" in row or "raw" in row else OURS


def style(row: str) -> str:
    if "Python" in row or "C++" in row:
        return ":"
    return "--" if "flight" in row or "unix" in row else "-"


def unique(figures: list[dict], key: str) -> list[str]:
    return list(dict.fromkeys(f[key] for f in figures))


def lines(figures: list[dict], memcpy: float, folder: str) -> None:
    """One panel per table of throughputs; only Java and the peers, which tell the story."""
    titles = [g for g in unique(figures, "group") if g.startswith(("Throughput", "UCX"))]
    wanted = [f for f in figures if f["unit"] == "GB/s" and f["group"] in titles]
    groups = unique(wanted, "group")
    if not groups:
        return
    rows = -(-len(groups) // 2)
    fig, axes = plt.subplots(rows, 2, figsize=(13, 6.5 * rows), squeeze=False)
    for axis in axes.flat[len(groups) :]:
        axis.set_visible(False)
    for axis, group in zip(axes.flat, groups):
        of_group = [f for f in wanted if f["group"] == group and "Python" not in f["row"]]
        columns = unique(of_group, "column")
        markers = iter("osv^D<>pPX*hHd" * 3)
        for row in unique(of_group, "row"):
            found = {f["column"]: f["median"] for f in of_group if f["row"] == row}
            axis.plot(
                [columns.index(c) for c in found],
                list(found.values()),
                style(row),
                color=colour(row),
                marker=next(markers),
                markersize=5,
                label=row.removesuffix(", Java"),
            )
        axis.axhline(memcpy, color=MACHINE, linewidth=0.8)
        axis.text(0, memcpy, " memcpy", color=MACHINE, va="bottom", fontsize=8)
        axis.set_yscale("log")
        axis.set_xticks(range(len(columns)), columns)
        axis.set_xlabel("batch size")
        axis.set_ylabel("GB/s")
        axis.set_title(group.removeprefix("Throughput: "), fontsize=10)
        axis.grid(True, which="both", alpha=0.2)
        axis.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2)
    save(fig, folder, "throughput.svg")


def bars(axis, figures: list[dict], title: str, size: int) -> None:
    rows = sorted(figures, key=lambda f: f["median"], reverse=title.startswith("us"))
    axis.barh([f["row"] for f in rows], [f["median"] for f in rows], color=[colour(f["row"]) for f in rows])
    for at, f in enumerate(rows):
        text = f"{f['median']:,.0f}" if f["median"] >= 100 else f"{f['median']:.3g}"
        axis.text(f["median"], at, " " + text, va="center", fontsize=size)
    axis.set_xscale("log")
    axis.margins(x=0.2)
    axis.tick_params(labelsize=size)
    axis.set_title(title, fontsize=size + 2)


def panels(figures: list[dict], wanted: list[tuple], folder: str, name: str, size: int) -> None:
    found = []
    for group, column, title in wanted:
        rows = [f for f in figures if f["group"] == group and f["column"] == column]
        if rows:
            found.append((rows, title))
    if not found:
        return
    height = 1 + max(len(rows) for rows, _ in found) * 0.28
    fig, axes = plt.subplots(1, len(found), figsize=(6.5 * len(found), height), squeeze=False)
    for axis, (rows, title) in zip(axes[0], found):
        bars(axis, rows, title, size)
    save(fig, folder, name)


def save(fig, folder: str, name: str) -> None:
    fig.tight_layout()
    fig.savefig(os.path.join(folder, name), metadata={"Date": None})
    plt.close(fig)


def main() -> None:
    folder = sys.argv[1]
    with open(os.path.join(folder, "results.json")) as file:
        figures = [f for f in json.load(file)["figures"] if "median" in f]
    memcpy = next((f["median"] for f in figures if f["row"].startswith("memcpy")), None)
    if memcpy is None:
        return
    panels(figures, list(SUMMARY), folder, "summary.svg", 8)
    lines(figures, memcpy, folder)
    small = [g for g in unique(figures, "group") if "one row" in g.lower()]
    panels(figures, [(g, "p50", "us: " + g) for g in small], folder, "one-row.svg", 8)


main()
