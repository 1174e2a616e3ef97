"""A slave's log takes a master's bytes as they come, and nothing else."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyledger._core import CommitLog, MappedFileQueue, ReplicaLog
from pyledger.errors import CorruptRecordError, OffsetOutOfRangeError, StoreFormatError
from pyledger.protocol.ha.slave import FRAME_HEADER
from tests.support.mappings import mapped_parts, needs_smaps

FILE_BYTES = 4096


def master(folder: Path, count: int = 60) -> tuple[bytes, list[int], list[int]]:
    """The bytes of a log, where its records begin, and where they end."""
    queue = MappedFileQueue(str(folder), FILE_BYTES)
    queue.load()
    log = CommitLog(queue)
    places = [log.append("T", n % 3, b"x" * (n * 7 % 300))[:2] for n in range(count)]
    view = queue.view()
    data = b"".join(
        view.read(at, min(FILE_BYTES, view.end_offset - at)) for at in range(0, view.end_offset, FILE_BYTES)
    )
    queue.close()
    return data, [at for at, _ in places], [at + size for at, size in places]


def replica(folder: Path, file_bytes: int = FILE_BYTES) -> ReplicaLog:
    queue = MappedFileQueue(str(folder), file_bytes)
    queue.load()
    return ReplicaLog(queue)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 700), min_size=1, max_size=30))
def test_bytes_in_any_pieces_are_the_masters_and_records_count_when_whole(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("replica")
    data, _, ends = master(folder / "master")
    log, at, step = replica(folder / "slave"), 0, 0
    # A blank counts when its file is full.
    boundaries = {0, *ends, *range(0, len(data), FILE_BYTES)}
    while at < len(data):
        size = min(sizes[step % len(sizes)], len(data) - at, FILE_BYTES - at % FILE_BYTES)
        assert log.append(at, data[at : at + size]) == at + size
        at, step = at + size, step + 1
        assert log.whole_where == max(place for place in boundaries if place <= at)
        # Nobody sees a part of a record.
        assert log.queue.max_offset == log.whole_where
    assert log.whole_where == len(data)
    view = log.queue.view()
    assert (
        b"".join(view.read(p, min(FILE_BYTES, len(data) - p)) for p in range(0, len(data), FILE_BYTES))
        == data
    )
    log.queue.close()


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.integers(1, 900), min_size=1, max_size=20), st.integers(1, 9000), st.data())
def test_whole_frames_go_on_together(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], cut: int, draw: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("frames")
    data, _, ends = master(folder / "master")
    first = sizes[0]
    log = replica(folder / "slave")
    log.append(0, data[:first])
    frames, at, stops = b"", first, []
    for wanted in sizes[1:]:
        size = min(wanted, FILE_BYTES - at % FILE_BYTES)
        frames += FRAME_HEADER.pack(at, size) + data[at : at + size]
        at += size
        stops.append((len(frames), at))
    chunk = frames[:cut]
    # One may be out of order: what comes before it is taken.
    odd = draw.draw(st.integers(0, len(stops)))
    if odd < len(stops):
        begin = stops[odd - 1][0] if odd else 0
        header = FRAME_HEADER.pack(*draw.draw(st.sampled_from([(at + 1, 5), (at, 0), (at, -1), (-1, 5)])))
        chunk = (frames[:begin] + header + frames[begin + FRAME_HEADER.size :])[:cut]
    whole = [(0, first)]
    for number, (end, place) in enumerate(stops):
        if end > len(chunk) or number == odd or place > FILE_BYTES:
            break
        whole.append((end, place))
    assert log.take_frames(chunk) == whole[-1][0]
    assert log.queue.wrote_where == whole[-1][1]
    # A full file ends in a blank record.
    assert log.whole_where == max(end for end in (0, *ends, FILE_BYTES) if end <= whole[-1][1])
    assert log.queue.files[0].wrote_position == whole[-1][1]
    log.append(whole[-1][1], data[whole[-1][1] : FILE_BYTES])
    assert log.queue.view().read(0, FILE_BYTES) == data[:FILE_BYTES]
    log.queue.close()


def test_frames_that_are_no_records_leave_nothing(tmp_path: Path) -> None:
    data, starts, _ = master(tmp_path / "master")
    log = replica(tmp_path / "slave")
    assert log.take_frames(FRAME_HEADER.pack(0, 100) + data[:100]) == 0
    log.append(0, data[: starts[2]])
    wrong = bytearray(data[starts[2] : starts[6]])
    wrong[starts[4] - starts[2] + 4] ^= 1
    middle = starts[3] + 7 - starts[2]
    frames = FRAME_HEADER.pack(starts[2], middle) + wrong[:middle]
    frames += FRAME_HEADER.pack(starts[2] + middle, len(wrong) - middle) + wrong[middle:]
    with pytest.raises(CorruptRecordError):
        log.take_frames(frames)
    assert (log.queue.wrote_where, log.whole_where) == (starts[2], starts[2])
    assert log.append(starts[2], data[starts[2] : FILE_BYTES]) == FILE_BYTES
    assert log.queue.view().read(0, FILE_BYTES) == data[:FILE_BYTES]
    log.queue.close()


def test_a_partial_record_is_taken_back(tmp_path: Path) -> None:
    data, starts, _ = master(tmp_path / "master")
    log = replica(tmp_path / "slave")
    log.append(0, data[: starts[5] + 20])
    assert (log.whole_where, log.truncate_partial()) == (starts[5], 20)
    assert (log.queue.wrote_where, log.truncate_partial()) == (starts[5], 0)
    log.append(starts[5], data[starts[5] : starts[6]])
    assert log.whole_where == starts[6]
    log.queue.close()


def reads_ahead(path: Path) -> bool:
    """Whether the kernel reads ahead where a file is mapped in this process."""
    return all(ahead for _, ahead in mapped_parts(path))


@needs_smaps
def test_nothing_is_read_ahead_of_what_is_written(tmp_path: Path) -> None:
    data, _, _ = master(tmp_path / "master")
    log = replica(tmp_path / "slave")
    for at in range(0, 2 * FILE_BYTES, FILE_BYTES):
        log.append(at, data[at : at + FILE_BYTES])
    first, last = (tmp_path / "slave" / f"{at:020d}" for at in (0, FILE_BYTES))
    assert not reads_ahead(last)
    assert reads_ahead(first)
    log.truncate_partial()
    assert reads_ahead(last)
    log.queue.close()


def test_append_at_another_offset_than_the_end_is_rejected(tmp_path: Path) -> None:
    data, starts, _ = master(tmp_path / "master")
    log = replica(tmp_path / "slave")
    for offset in (1, -1, FILE_BYTES + 8):
        with pytest.raises(OffsetOutOfRangeError):
            log.append(offset, data[:10])
    log.append(0, data[: starts[1]])
    for offset in (0, starts[1] - 1, starts[1] + 1):
        with pytest.raises(OffsetOutOfRangeError):
            log.append(offset, data[:10])
    log.queue.close()


@pytest.mark.parametrize("at", [0, 4, 28])
def test_bytes_that_are_no_record_are_rejected_and_leave_nothing(tmp_path: Path, at: int) -> None:
    data, starts, _ = master(tmp_path / "master")
    log = replica(tmp_path / "slave")
    log.append(0, data[: starts[3]])
    wrong = bytearray(data[starts[3] : starts[5]])
    wrong[at] ^= 0x55
    with pytest.raises(CorruptRecordError):
        log.append(starts[3], wrong)
    assert (log.queue.wrote_where, log.whole_where) == (starts[3], starts[3])
    assert log.append(starts[3], data[starts[3] : starts[5]]) == starts[5]
    log.queue.close()


def test_a_master_with_other_file_sizes_is_rejected(tmp_path: Path) -> None:
    data, _, _ = master(tmp_path / "master")
    larger = replica(tmp_path / "larger", 2 * FILE_BYTES)
    with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog"):
        larger.append(0, data[:FILE_BYTES])
    larger.queue.close()
    smaller = replica(tmp_path / "smaller", FILE_BYTES // 2)
    with pytest.raises(StoreFormatError, match="mappedFileSizeCommitLog"):
        smaller.append(0, data[:FILE_BYTES])
    smaller.queue.close()
