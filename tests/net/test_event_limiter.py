"""Log lines that peers cause, at a bounded rate."""

import logging
from typing import Any

import pytest

from pyledger.errors import MalformedMessageIdError
from pyledger.log_events import logger
from pyledger.net.event_limiter import KINDS_MAX, PERIOD_S, EventLimiter
from tests.net.test_timers import Clock

log = logger("net")


class Loop(Clock):
    """A time that a test sets."""

    def call_later(self, delay: float, action: Any, *arguments: object) -> Any:
        return self.call_at(self.now + delay, lambda: action(*arguments))


def limiter(loop: Loop) -> EventLimiter:
    one: Any = loop
    return EventLimiter(one)


def failed(kind: type[Exception], text: str) -> Exception:
    try:
        raise kind(text)
    except kind as error:
        return error


def test_the_first_of_a_kind_is_logged_and_the_others_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    events = limiter(loop)
    for number in range(1000):
        error = failed(ValueError, f"bad {number}")
        events.event(log, logging.ERROR, "request failed", error, peer=f"10.0.0.{number % 9}:{number}")
    assert [record.getMessage() for record in caplog.records] == ["request failed peer=10.0.0.0:0"]
    assert "ValueError: bad 0" in caplog.text
    loop.advance(loop.now + PERIOD_S)
    events.event(log, logging.ERROR, "request failed", error, peer="10.0.0.1:1")
    loop.advance(loop.now + PERIOD_S)
    counts = [record for record in caplog.records if vars(record)["event"] == "request failed again"]
    assert [(vars(record)["fields"]["count"], record.levelname) for record in counts] == [
        (999, "ERROR"),
        (1, "ERROR"),
    ]
    assert f"ValueError {__file__}:" in counts[0].getMessage()
    caplog.clear()
    loop.advance(loop.now + 2 * PERIOD_S)
    assert not caplog.records
    assert not loop.armed
    events.event(log, logging.ERROR, "request failed", error, peer="10.0.0.1:1")
    assert "ValueError: bad 999" in caplog.text, "after a quiet minute it is news again"


def test_other_messages_lines_of_code_and_hosts_are_other_kinds(caplog: pytest.LogCaptureFixture) -> None:
    events = limiter(Loop())
    here = failed(ValueError, "x")
    other = failed(MalformedMessageIdError, "x")
    for _ in range(3):
        for error in (here, other):
            events.event(log, logging.ERROR, "request failed", error, peer="10.0.0.1:1")
        for host in ("10.0.0.1", "10.0.0.2", "[::1]"):
            for port in range(5):
                events.event(
                    log, logging.WARNING, "frame rejected", peer=f"{host}:{port}", problem="too long"
                )
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "request failed peer=10.0.0.1:1",
        "request failed peer=10.0.0.1:1",
        "frame rejected peer=10.0.0.1:0 problem=too long",
        "frame rejected peer=10.0.0.2:0 problem=too long",
        "frame rejected peer=[::1]:0 problem=too long",
    ]


def test_many_hosts_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    loop = Loop()
    events = limiter(loop)
    hosts = 10 * KINDS_MAX
    for number in range(hosts):
        events.event(log, logging.WARNING, "frame rejected", peer=f"host{number}:1")
    assert len(caplog.records) == KINDS_MAX + 1
    caplog.clear()
    events.close()
    assert [record.getMessage() for record in caplog.records] == [
        f"frame rejected again source=others count={hosts - KINDS_MAX - 1}"
    ]
    loop.advance(loop.now + 2 * PERIOD_S)
    assert len(caplog.records) == 1
