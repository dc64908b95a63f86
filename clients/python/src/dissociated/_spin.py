"""Staying awake for a moment before sleeping."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

_ANSWER_MICROS = 50.0
_MOST_PATIENCE = 1024


def _limit() -> float:
    """Seconds; the environment variable ``DISSOCIATED_SPIN_MICROS`` says otherwise."""
    told = os.environ.get("DISSOCIATED_SPIN_MICROS", "")
    try:
        return max(0.0, float(told)) / 1e6
    except ValueError:
        pass
    # Whoever is waited for needs a processor of his own.
    alone = not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == 1
    return 0.0 if alone else _ANSWER_MICROS / 1e6


class Spin:
    """How long to look again and again for what is due, before sleeping until it comes.

    Being woken on another core takes longer than most answers do. Where looking was in vain,
    sleeping comes first, for twice as many waits each time. Of one thread at a time.
    """

    def __init__(self) -> None:
        self._limit = _limit()
        self._patience = 0
        self._skip = 0

    def until(self, is_there: Callable[[int], Any]) -> bool:
        """Whether it came in time. Others have a turn between two looks, each of which waits 0."""
        if self._skip or not self._limit:
            self._skip -= self._skip > 0
            return False
        end = time.perf_counter() + self._limit
        while not is_there(0):
            if time.perf_counter() > end:
                self._patience = self._skip = min(_MOST_PATIENCE, max(1, 2 * self._patience))
                return False
        self._patience = 0
        return True
