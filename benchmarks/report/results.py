"""What runs of the benchmarks found, and how a line of the report judges it."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

JAVA_VERSIONS = ("5.3.3", "4.9.8")


class Results:
    """The cases of all runs, by their short names."""

    def __init__(self, runs: list[dict[str, Any]]) -> None:
        self.facts: dict[str, Any] = {}
        self._cases: dict[str, list[dict[str, Any]]] = {}
        for case in (case for run in runs for case in run["benchmarks"]):
            name = case["fullname"].rpartition("/")[2].replace("bench_", "").replace(".py::", ".")
            self._cases.setdefault(name, []).append(case["extra_info"])
            self.facts = case["extra_info"]
        self.loads = [case["load"] for cases in self._cases.values() for case in cases if "load" in case]

    def best(self, name: str, fact: str = "per_second") -> float:
        return float(max(case[fact] for case in self._cases[name]))

    def middle(self, name: str, fact: str) -> float:
        return float(statistics.median(case[fact] for case in self._cases[name]))

    def only(self, name: str) -> dict[str, Any]:
        """All facts of the last run of a case."""
        return self._cases[name][-1]

    def least(self, name: str, fact: str) -> float:
        return float(min(case[fact] for case in self._cases[name]))

    def java(self, name: str, fact: str = "per_second") -> dict[str, float]:
        """By version; `name` has a gap for it."""
        named = {version: name.format(version) for version in JAVA_VERSIONS}
        return {v: self.best(n, fact) for v, n in named.items() if n in self._cases}


Verdict = tuple[bool | None, str]


@dataclass(frozen=True)
class Row:
    """One line of the table: a question, its goal, and what the runs say."""

    what: str
    goal: str
    judge: Callable[[Results], Verdict]

    def verdict(self, results: Results) -> Verdict | None:
        """Whether the goal is met, and what was found; None: the runs do not say."""
        try:
            return self.judge(results)
        except KeyError:
            return None

    def line(self, met: bool | None, text: str, day: str) -> str:
        mark = "" if met is None else "yes" if met else "**no**"
        return f"| {self.what} | {self.goal} | {mark} | {text} | {day} |"


def rate(value: float) -> str:
    """So many a second, in three digits."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {unit}/s"
    return f"{value:.3g}/s"


def at_least(name: str, goal: float) -> Callable[[Results], Verdict]:
    return lambda r: (r.best(name) >= goal, rate(r.best(name)))
