"""The rule that gives up old files: by hour, by a filling disk, on demand; with upstream's hysteresis."""

import os
from pathlib import Path

import pytest

from pyledger.store.files.retention import RetentionRule, count_expired, disk_usage

HOUR_MS = 3_600_000


def rule(**changes: object) -> RetentionRule:
    settings: dict[str, object] = {
        "delete_hours": (4,), "warning_percent": 90, "forced_percent": 85, "used_percent_max": 75,
    }  # fmt: skip
    return RetentionRule(**(settings | changes))  # type: ignore[arg-type]


def test_cleaning_is_due_in_the_set_hour_only() -> None:
    assert [hour for hour in range(24) if rule().decide(hour, (50, 50)).clean] == [4]


@pytest.mark.parametrize(
    ("log", "queues", "clean", "immediate", "full"),
    [
        (75, 75, False, False, False),
        (76, 10, True, False, False),
        (10, 76, True, False, False),
        (85, 10, True, False, False),
        (86, 10, True, True, False),
        (90, 10, True, True, False),
        (91, 10, True, True, True),
        (10, 91, True, True, True),
        (-1, 10, True, False, False),
    ],
)
def test_usage_decides(log: int, queues: int, clean: bool, immediate: bool, full: bool) -> None:
    decision = rule().decide(12, (log, queues))
    assert (decision.clean, decision.immediate, decision.disk_full) == (clean, immediate, full)


def test_disk_full_keeps_its_state_between_forced_and_warning() -> None:
    watched = rule()
    states = [watched.decide(12, (used,)).disk_full for used in (88, 91, 88, 86, 85, 88)]
    assert states == [False, True, True, True, False, False]


def test_forcing_can_be_switched_off() -> None:
    decision = rule(may_force=False).decide(12, (95,))
    assert decision.clean
    assert not decision.immediate
    assert decision.disk_full


def test_a_request_on_demand_lasts_twenty_rounds() -> None:
    requested = rule()
    requested.request()
    assert [requested.decide(12, (10,)).clean for _ in range(22)] == [True] * 20 + [False] * 2


def make_files(folder: Path, ages_h: list[float], now_ms: int) -> list[str]:
    paths = []
    for index, age_h in enumerate(ages_h):
        path = folder / f"{index:020d}"
        path.touch()
        when = (now_ms - age_h * HOUR_MS) / 1000
        os.utime(path, (when, when))
        paths.append(str(path))
    return paths


def test_files_go_oldest_first_up_to_the_first_young_one(tmp_path: Path) -> None:
    now_ms = 1_700_000_000_000
    paths = make_files(tmp_path, [100, 73, 71, 90, 0], now_ms)
    assert count_expired(paths, now_ms, 72 * HOUR_MS, immediate=False, batch_max=10) == 2


def test_a_file_goes_at_the_very_millisecond_and_not_before(tmp_path: Path) -> None:
    now_ms = 1_700_000_000_000
    paths = make_files(tmp_path, [72, 0], now_ms)
    assert count_expired(paths, now_ms, 72 * HOUR_MS, immediate=False, batch_max=10) == 1
    assert count_expired(paths, now_ms - 1, 72 * HOUR_MS, immediate=False, batch_max=10) == 0


def test_immediate_cleaning_ignores_age_but_never_takes_the_last_file(tmp_path: Path) -> None:
    paths = make_files(tmp_path, [0, 0, 0], 1_700_000_000_000)
    assert count_expired(paths, 1_700_000_000_000, 72 * HOUR_MS, immediate=True, batch_max=10) == 2
    assert count_expired(paths[:1], 1_700_000_000_000, 0, immediate=True, batch_max=10) == 0


def test_a_round_takes_at_most_the_batch(tmp_path: Path) -> None:
    paths = make_files(tmp_path, [100] * 15, 1_700_000_000_000)
    assert count_expired(paths, 1_700_000_000_000, HOUR_MS, immediate=False, batch_max=10) == 10


def test_disk_usage_is_a_percentage_and_unknown_for_a_missing_path(tmp_path: Path) -> None:
    assert 0 < disk_usage(str(tmp_path)) <= 100
    assert disk_usage(str(tmp_path / "missing")) == -1
