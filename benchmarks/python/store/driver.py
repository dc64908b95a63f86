"""The store beside Plasma and vineyard, in one run: a table and every sample.

Each round measures each store with a daemon of its own, started for it; the machine's own measures are taken beside
each. A peer that cannot be had is left out, and the report says which and why.
usage: driver.py [--rounds N] [--quick] [--out FOLDER] HOME JAVA... ; see benchmarks/run store
"""

import argparse
import glob
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time

from figures import Figures, percentile
from processes import Agent, Daemon, Missing, environment, memory, pin

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
MEMORY = 5 * GIB
MANY = 100_000
READERS = 8
JAVA, PYTHON, PLASMA, VINEYARD = "this project, Java", "this project, Python", "Plasma", "vineyard"
PACKAGES = {PLASMA: ("pyarrow==11.0.0", "numpy<2"), VINEYARD: ("vineyard", "numpy<2")}
KINDS = {JAVA: "", PYTHON: "dissociated", PLASMA: "plasma", VINEYARD: "vineyard"}


class Lab:
    """What all measurements share."""

    def __init__(self, options):
        self.home, self.java, self.quick = options.home, options.java, options.quick
        self.folder = tempfile.mkdtemp(prefix="dissociated-store")
        self.log = open(os.path.join(self.folder, "log"), "a")
        self.figures, self.skipped = Figures(tuple(KINDS)), {}
        self.started = 0
        self.rtt = self.memcpy = 0.0
        self.echo_socket = os.path.join(self.folder, "echo.sock")
        self.echo = Agent("echo", [*self.java, "echo", self.echo_socket], self.log)
        self.pinger = Agent("ping", [*self.java, "ping"], self.log)
        peer = os.path.join(os.path.dirname(__file__), "peer.py")
        self.copier = Agent("copy", [sys.executable, peer, "none", ""], self.log)
        self.pythons = {JAVA: sys.executable, PYTHON: sys.executable}
        for column, packages in PACKAGES.items():
            try:
                folder = os.path.join(self.home, ".build/benchmarks", KINDS[column])
                self.pythons[column] = environment(column, packages, folder, self.log)
            except Missing as why:
                self.skipped[column] = str(why)

    def close(self):
        for agent in (self.echo, self.pinger, self.copier):
            agent.close()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def references(self):
        """The machine's own measures, of this moment."""
        pin(self.echo.pid, 0)
        pin(self.pinger.pid, last_core())
        trips = self.pinger.ask("rtt", socket=self.echo_socket, count=2000, warm=500)["seconds"]
        self.rtt = percentile(trips, 0.5) * 1e6
        copies = self.copier.ask("memcpy", size=GIB // 4)["seconds"]
        self.memcpy = GIB / 4 / statistics.median(copies) / 1e9
        self.figures.add("socket round trip (RTT)", JAVA, "us", self.rtt)
        self.figures.add("memcpy of 256 MiB, warm", PYTHON, "GB/s", self.memcpy)

    def daemon(self, column):
        self.started += 1
        socket = os.path.join(self.folder, f"{self.started}.sock")
        if column == PLASMA:
            program = self._program(column, "pyarrow/plasma-store-server")
            return Daemon([program, "-m", str(MEMORY), "-s", socket], socket, self.log)
        if column == VINEYARD:
            program = self._program(column, "vineyard/bdist/vineyardd")
            command = [program, "-meta", "local", "-size", str(MEMORY), "-socket", socket, "-rpc=false"]
            return Daemon(command, socket, self.log)
        command = [os.path.join(self.home, "dissociated"), "serve", "--socket", socket, "--memory", str(MEMORY)]
        return Daemon([*command, "--ready", str(GIB)], socket, self.log, first_line=True)

    def _program(self, column, path):
        folder = os.path.dirname(os.path.dirname(self.pythons[column]))
        found = glob.glob(os.path.join(folder, "lib/python*/site-packages", path))
        if not found:
            raise Missing(f"it has no {os.path.basename(path)}")
        return found[0]

    def client(self, column, daemon):
        if column == JAVA:
            return Agent(column, [*self.java, daemon.socket], self.log)
        peer = os.path.join(os.path.dirname(__file__), "peer.py")
        return Agent(column, [self.pythons[column], peer, KINDS[column], daemon.socket], self.log)


def last_core():
    return max(os.sched_getaffinity(0))


class Bench:
    """All measurements of one store with one client, whose daemon is fresh."""

    def __init__(self, lab, column):
        self.lab, self.column = lab, column
        self.daemon = lab.daemon(column)
        self.others = []
        self.peer = None

    def close(self):
        for agent in self.others + ([self.peer] if self.peer else []):
            agent.close()
        self.daemon.close()

    def note(self, row, unit, value, reference=None):
        self.lab.figures.add(row, self.column, unit, value, reference)

    def micros(self, row, seconds):
        self.note(f"{row}, p50", "us", percentile(seconds, 0.5) * 1e6, self.lab.rtt)
        self.note(f"{row}, p99", "us", percentile(seconds, 0.99) * 1e6)

    def rate(self, row, size, seconds):
        value = size / seconds / 1e9
        self.note(row, "GB/s", value, self.lab.memcpy)

    def apart(self, yes):
        pin(self.daemon.pid, 0 if yes else None)
        pin(self.peer.pid, last_core() if yes else None)

    def other(self):
        """One more process, to which this store's names are known."""
        agent = self.lab.client(PYTHON if self.column == JAVA else self.column, self.daemon)
        self.others.append(agent)
        if self.column == VINEYARD:
            agent.ask("ids", known=self.peer.ask("ids")["ids"])
        return agent

    def run(self):
        self.note("daemon, start to listening", "s", self.daemon.seconds)
        time.sleep(3)  # until it has made its memory ready
        idle = memory(self.daemon.pid)
        self.note("daemon, private memory when idle", "MiB", idle["RssAnon"] / MIB)
        self.lab.references()
        self.peer = self.lab.client(self.column, self.daemon)
        self.large()
        self.small()
        self.tables()
        if not self.lab.quick:
            self.many()

    def large(self):
        ask = self.peer.ask
        self.rate("put of 1 GiB, daemon fresh and ready", GIB, ask("put", name="g", size=GIB, count=1)["seconds"][0])
        warm = ask("put", name="w", size=GIB, count=2 if self.lab.quick else 5)["seconds"]
        self.rate("put of 1 GiB, warm", GIB, statistics.median(warm))
        sealed = ask("seal", name="s", size=GIB, count=2)["seconds"]
        self.note("no-copy put of 1 GiB, hand-over", "us", statistics.median(sealed) * 1e6)
        ask("put", name="big", size=GIB, count=1, delete=False)
        self.apart(True)
        self.micros("get of 1 GiB, mapped", ask("get", name="big0", count=500, warm=100)["seconds"])
        self.apart(False)
        if self.column != JAVA:
            self.readers()
        ask("delete", names=["big0"])

    def readers(self):
        """How much shared memory so many readers of one object have, divided by its users, and summed."""
        readers = [self.other() for _ in range(2 if self.lab.quick else READERS)]
        private = 0
        for reader in readers:
            before = memory(reader.pid)["RssAnon"]
            reader.ask("hold", name="big0")
            private += memory(reader.pid)["RssAnon"] - before
        users = [memory(agent.pid).get("Pss_Shmem", 0) for agent in [self.daemon, self.peer, *readers]]
        self.note(f"{len(readers)} readers of 1 GiB, shared memory", "MiB", sum(users) / MIB)
        self.note(f"{len(readers)} readers of 1 GiB, private memory gained", "MiB", private / MIB)
        for reader in readers:
            reader.close()
        self.others = []

    def small(self):
        ask = self.peer.ask
        for size, label, count in ((KIB, "1 KiB", 2000), (MIB, "1 MiB", 1000)):
            ask("put", name=f"o{size}.", size=size, count=1, delete=False)
            self.apart(True)
            self.micros(f"get of {label}, mapped", ask("get", name=f"o{size}.0", count=count, warm=500)["seconds"])
            self.apart(False)
        self.first()
        self.apart(True)
        ask("put", name="warm", size=KIB, count=200)
        self.micros("put of 1 KiB", ask("put", name="k", size=KIB, count=500)["seconds"])
        sealed = ask("seal", name="t", size=KIB, count=100)["seconds"]
        self.note("no-copy put of 1 KiB, hand-over", "us", statistics.median(sealed) * 1e6)
        count = 2000 if self.lab.quick else 10_000
        self.note("create and seal of 64 B", "1/s", count / ask("fill", name="r", count=count)["seconds"][0])
        self.apart(False)

    def first(self):
        """Each of these lies in memory of its own, which the reader has not mapped."""
        if self.column == JAVA:
            return
        names = [f"n{i}" for i in range(20)]
        for name in names:
            self.peer.ask("seal", name=name, size=MIB, count=1, delete=False)
        reader = self.other()
        self.apart(True)
        pin(reader.pid, last_core())
        seconds = reader.ask("first", names=[name + "0" for name in names])["seconds"]
        self.note("first get of a new segment, p50", "us", percentile(seconds, 0.5) * 1e6, self.lab.rtt)
        self.apart(False)
        reader.close()
        self.others = []
        self.peer.ask("delete", names=[name + "0" for name in names])

    def tables(self):
        self.apart(True)
        self.peer.ask("table", name="tw", rows=64, count=100)
        answer = self.peer.ask("table", name="t", rows=64, count=300)
        self.micros("put of a table of 1 KiB", answer["puts"])
        self.micros("get of a table of 1 KiB", answer["gets"])
        self.apart(False)

    def many(self):
        """The same operations among many objects."""
        before = memory(self.daemon.pid)["RssAnon"]
        count = MANY if self.column != VINEYARD else MANY // 10  # which takes minutes for as many
        self.peer.ask("fill", name="m", count=count)
        after = memory(self.daemon.pid)["RssAnon"]
        self.note("daemon, private memory per object", "bytes", (after - before) / count)
        self.apart(True)
        among = f"among {count:,} objects"
        self.micros(f"get of 1 KiB, {among}", self.peer.ask("get", name=f"o{KIB}.0", count=1000, warm=100)["seconds"])
        self.micros(f"put of 1 KiB, {among}", self.peer.ask("put", name="l", size=KIB, count=500)["seconds"])
        self.apart(False)


def report(lab, options, started, rounds):
    with open("/proc/cpuinfo") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), platform.machine())
    facts = {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started),
        "rounds": rounds,
        "load": os.getloadavg()[1],
        "skipped": lab.skipped,
    }
    text = (
        f"{facts['cpu']}, {facts['cores']} cores, Linux {facts['kernel']}; {facts['started']}, {rounds} rounds,"
        f" {facts['seconds']} s. Medians; in brackets the ratio to RTT (one byte over a Unix socket to another core"
        " and back) or to memcpy of the same moment. Plasma is pyarrow 11's; a daemon and its client have a core each"
        " where times are in microseconds.\n\n"
    )
    text += "".join(f"Skipped: {column}: {why}\n\n" for column, why in lab.skipped.items())
    text += lab.figures.markdown() + "\n"
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "store.md"), "w") as file:
            file.write(text)
        with open(os.path.join(options.out, "store.json"), "w") as file:
            json.dump({**facts, "figures": lab.figures.json()}, file, indent=1)
            file.write("\n")
    print(text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one round, without the long ones")
    parser.add_argument("--out", help="also write store.md and store.json to this folder")
    parser.add_argument("--only", default="", help="columns whose name contains this")
    parser.add_argument("home")
    parser.add_argument("java", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    started = time.time()
    lab = Lab(options)
    rounds = 1 if options.quick else options.rounds
    try:
        for number in range(rounds):
            for column in KINDS:
                if column in lab.skipped or options.only not in column:
                    continue
                print(f"bench: round {number + 1} of {rounds}: {column}", file=sys.stderr, flush=True)
                bench = None
                try:
                    bench = Bench(lab, column)
                    bench.run()
                except Missing as why:
                    lab.skipped[column] = str(why)
                    print(f"bench: left out: {column}: {why}", file=sys.stderr, flush=True)
                finally:
                    if bench is not None:
                        bench.close()
        report(lab, options, started, rounds)
    finally:
        lab.close()


main()
