"""Where timer messages stand, as it travels."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import MalformedBodyError
from pyledger.model.remoting_codes import RequestCode
from pyledger.model.topic import DataVersion
from pyledger.wire.remoting.bodies.timer_checkpoint import NUMBERS, TimerCheckpoint
from pyledger.wire.remoting.command import decode
from pyledger.wire.remoting.framing import FrameDecoder
from tests.golden.remoting_frames import recorded_frames

NUMBER = st.integers(-(1 << 63), (1 << 63) - 1)


def test_a_checkpoint_of_java_is_read() -> None:
    bodies = [
        decode(FrameDecoder().feed(frame.data)[0]).body
        for frame in recorded_frames()
        if (frame.answers or {}).get("code") == RequestCode.GET_TIMER_CHECK_POINT
    ]
    assert bodies
    for body in bodies:
        found = TimerCheckpoint.decode(body)
        assert found.last_read_time_ms > 1_600_000_000_000
        assert found.master_timer_queue_offset >= found.last_timer_queue_offset >= 0
        assert (found.restart_offset, found.first_ms) == (0, None)
        assert found.encode()[: NUMBERS.size] == bytes(body)


@given(st.lists(NUMBER, min_size=10, max_size=10))
def test_what_was_written_is_read(numbers: list[int]) -> None:
    version = DataVersion(*numbers[4:7])
    checkpoint = TimerCheckpoint(*numbers[:4], version, *numbers[7:])
    assert TimerCheckpoint.decode(checkpoint.encode()) == checkpoint
    assert TimerCheckpoint.decode(checkpoint.encode()[: NUMBERS.size])[:5] == checkpoint[:5]


@pytest.mark.parametrize("size", [0, 8, 55])
def test_a_short_one_is_rejected(size: int) -> None:
    with pytest.raises(MalformedBodyError, match=f"{size} bytes"):
        TimerCheckpoint.decode(bytes(size))
