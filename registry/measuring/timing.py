"""How times of calls that take turns are taken, and what is said of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ROUNDS = 15
FEWEST_ROUNDS = 5
HOPELESS = 4.0
"""What is so many times slower than the fastest after ``FEWEST_ROUNDS`` is not measured further."""

SAMPLE_SECONDS = 0.005
MOST_CALLS = 1024
"""A sample is so many calls that it takes ``SAMPLE_SECONDS``, but no more than these."""

Stopwatch = Callable[[int], float]
"""``watch(calls)``: the seconds that so many calls take, one after another, until their results are there."""

Progress = Callable[[int, int], None]
"""Gets how much of how much is done."""


def no_progress(done: int, total: int) -> None:
    """Shows nothing."""


@dataclass(frozen=True)
class Times:
    """Seconds of a call, several times, and how they were taken. Median and quartiles are seconds, too."""

    seconds: tuple[float, ...]
    method: str = "the host's clock"

    @property
    def median(self) -> float:
        """The middle of them."""
        return statistics.median(self.seconds)

    @property
    def low(self) -> float:
        """The lower quartile."""
        return self._quartile(0)

    @property
    def high(self) -> float:
        """The upper quartile; between the two lies half of them, which is what is called the spread."""
        return self._quartile(2)

    def _quartile(self, which: int) -> float:
        if len(self.seconds) == 1:
            return self.seconds[0]
        return statistics.quantiles(self.seconds, n=4, method="inclusive")[which]

    def as_dict(self) -> dict[str, Any]:
        """Median and quartiles in microseconds, the number of samples, and the method."""
        median, low, high = (1e6 * seconds for seconds in (self.median, self.low, self.high))
        samples = {"samples": len(self.seconds), "method": self.method}
        return {"us": median, "us_low": low, "us_high": high, **samples}

    def faster_than(self, other: Times) -> bool:
        """Whether it is faster by more than the spread: the quartiles of the two do not overlap."""
        return self.high < other.low


def time_cells(times: Times | None) -> tuple[str, str]:
    """Median and quartiles for a table; empty without times."""
    if times is None:
        return "", ""
    median, low, high = (1e6 * seconds for seconds in (times.median, times.low, times.high))
    return f"{median:.1f} us", f"{low:.1f} to {high:.1f}"


def stopwatch(
    call: Callable[[], Any], wait: Callable[[], None], clock: Callable[[], float] = time.perf_counter
) -> Stopwatch:
    """Times a call; ``wait`` returns when everything the calls have begun is done."""

    def watch(calls: int) -> float:
        wait()
        begin = clock()
        for _ in range(calls):
            call()
        wait()
        return clock() - begin

    return watch


def measure(
    watches: Sequence[Stopwatch],
    rounds: int = ROUNDS,
    progress: Progress = no_progress,
    groups: Sequence[str] = (),
) -> list[Times | Exception]:
    """The times of each call, or what it raised.

    They take turns, each round beginning with another one, so that what the machine does meanwhile falls on
    all of them. Before the first round each runs until a sample is long enough, which warms it up. One that
    is slower by far than another one of its group (default: all are one) leaves early.
    """
    groups = groups or [""] * len(watches)
    total = rounds * len(watches)
    calls: dict[int, int] = {}
    failed: dict[int, Exception] = {}
    samples: dict[int, list[float]] = {}
    for index, watch in enumerate(watches):
        try:
            calls[index] = _enough(watch)
            samples[index] = []
        except Exception as error:  # whatever a backend raises is its result here
            failed[index] = error
    for turn in range(rounds):
        running = list(samples) if turn < FEWEST_ROUNDS else _hopeful(samples, groups)
        for place in range(len(running)):
            index = running[(place + turn) % len(running)]
            try:
                samples[index].append(watches[index](calls[index]) / calls[index])
            except Exception as error:
                failed[index] = error
                del samples[index]
        progress((turn + 1) * len(watches), total)
    return [failed.get(index) or Times(tuple(samples[index])) for index in range(len(watches))]


def _enough(watch: Stopwatch) -> int:
    """The calls of a sample. The first call is not counted: it may allocate, or load code."""
    watch(1)
    calls = 1
    while watch(calls) < SAMPLE_SECONDS and calls < MOST_CALLS:
        calls *= 2
    return calls


def _hopeful(samples: Mapping[int, list[float]], groups: Sequence[str]) -> list[int]:
    """Those that still run, without the ones that are too slow by far."""
    medians = {index: statistics.median(found) for index, found in samples.items()}

    def fastest(group: str) -> float:
        return min(median for index, median in medians.items() if groups[index] == group)

    return [index for index, median in medians.items() if median <= HOPELESS * fastest(groups[index])]
