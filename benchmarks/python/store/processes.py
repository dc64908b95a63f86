"""Processes of the store's comparison: daemons, and clients that answer requests."""

import glob
import json
import os
import select
import subprocess
import sys
import time

ANSWER_SECONDS = 180
START_SECONDS = 60


class Missing(Exception):
    """Something that is not to be had, and why."""


class Agent:
    """A process that answers requests, one line each; every wait has a bound."""

    def __init__(self, name, command, log):
        self.name = name
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self.pid = self.process.pid
        self.rest = b""
        self._line(START_SECONDS)

    def _line(self, seconds):
        deadline = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.process.stdout], [], [], left)[0]:
                self.process.kill()
                raise Missing(f"{self.name} has said nothing for {seconds} s")
            more = os.read(self.process.stdout.fileno(), 1 << 20)
            if not more:
                raise Missing(f"{self.name} has ended")
            self.rest += more
        line, _, self.rest = self.rest.partition(b"\n")
        return line

    def ask(self, op, **arguments):
        try:
            self.process.stdin.write((json.dumps({"op": op, **arguments}) + "\n").encode())
            self.process.stdin.flush()
        except OSError:
            raise Missing(f"{self.name} has ended") from None
        answer = json.loads(self._line(ANSWER_SECONDS))
        if "error" in answer:
            raise Missing(f"{self.name}: {op}: {answer['error']}")
        return answer

    def close(self):
        try:
            self.process.stdin.close()
            self.process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


class Daemon:
    """A store's daemon at a socket of its own, ready when it is made."""

    def __init__(self, command, socket, log, first_line=False):
        self.socket = socket
        start = time.monotonic()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        self.pid = self.process.pid
        if first_line and not self.process.stdout.readline():
            raise Missing("the daemon has ended")
        while not os.path.exists(socket):
            if time.monotonic() - start > START_SECONDS or self.process.poll() is not None:
                self.close()
                raise Missing("the daemon does not listen")
            time.sleep(0.002)
        self.seconds = time.monotonic() - start

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def pin(pid, core):
    """All threads on one core, or, for None, on any: between two cores a round trip takes longer than within one."""
    cores = os.sched_getaffinity(0) if core is None else {core}
    for task in glob.glob(f"/proc/{pid}/task/*"):
        try:
            os.sched_setaffinity(int(os.path.basename(task)), cores)
        except OSError:
            pass  # a thread that has just ended


def memory(pid):
    """Bytes of this process alone, and shared ones divided by their users."""
    found = {}
    for path in (f"/proc/{pid}/status", f"/proc/{pid}/smaps_rollup"):
        with open(path) as file:
            for word in map(str.split, file):
                if word[0] in ("RssAnon:", "Pss_Shmem:"):
                    found[word[0][:-1]] = int(word[1]) << 10
    return found


def environment(name, packages, folder, log):
    """A private Python with a peer, made when it is not there: its interpreter. Raises Missing."""
    python = os.path.join(folder, "bin/python")
    stamp = os.path.join(folder, ".ready")
    if os.path.exists(stamp):
        return python
    base = next(filter(None, map(_find_python, ("3.10", "3.9", "3.8", "3.11"))), None)
    if base is None:
        raise Missing("needs a Python from 3.8 to 3.11 with venv")
    print(f"bench: installing {name}", file=sys.stderr, flush=True)
    install = [python, "-m", "pip", "-q", "--disable-pip-version-check", "install", *packages]
    for command in ([base, "-m", "venv", "--clear", folder], install):
        if subprocess.run(command, stdout=log, stderr=log, timeout=900, check=False).returncode:
            raise Missing(f"cannot be installed: {' '.join(packages)}")
    with open(stamp, "w"):
        return python


def _find_python(version):
    for candidate in (f"python{version}", *glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python"))):
        try:
            if subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
                return candidate
        except OSError:
            continue
    return None
