import logging

import pytest

from pyledger.log_events import event, logger


def test_event_carries_message_and_fields(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pyledger.store"):
        event(logger("store"), logging.INFO, "store recovered", max_offset=4096, clean=False)
    record = caplog.records[0]
    assert (record.name, record.getMessage()) == (
        "pyledger.store",
        "store recovered max_offset=4096 clean=False",
    )
    assert vars(record)["event"] == "store recovered"
    assert vars(record)["fields"] == {"max_offset": 4096, "clean": False}
    assert record.filename == "test_log_events.py"


def test_event_below_the_level_formats_nothing() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    event(logger("store"), logging.DEBUG, "queue truncated", value=Unprintable())


def test_every_event_can_be_written_as_utf_8(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="pyledger.store"):
        event(logger("store"), logging.INFO, "topic created", topic="caf\xe9 \udcff")
    assert caplog.records[0].getMessage() == "topic created topic=caf\xe9 \\udcff"
