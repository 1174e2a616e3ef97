"""Requests of our own groups: what is written is read again, damage is refused, answers are DLedger's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import MalformedBodyError
from pyledger.protocol.raft.messages import (
    ENTRY_HEADER,
    AppendEntryRequest,
    AppendEntryResponse,
    Entry,
    EntryRun,
    PushEntryRequest,
)
from pyledger.wire.dledger import encode_body
from pyledger.wire.dledger_raw import (
    appended_text,
    decode_raw_append,
    decode_raw_push,
    encode_append_head,
    encode_raw_append,
    encode_raw_push,
    read_append,
    read_appended,
)
from pyledger.wire.remoting import FLAG_RESPONSE, RemotingCommand, encode_frame, encode_plain_frame

names = st.text(min_size=1, max_size=9)


def stored(entry: Entry) -> bytes:
    head = (entry.magic, entry.size, entry.index, entry.term, entry.pos)
    return (
        ENTRY_HEADER.pack(*head, entry.channel, entry.chain_crc, entry.body_crc, len(entry.body)) + entry.body
    )


def entries_of(bodies: list[bytes], first: int = 5) -> list[Entry]:
    return [
        Entry(first + n, 3, 1000 * n, 48 + len(body), body, 1, 7, 11, 13) for n, body in enumerate(bodies)
    ]


def run_of(entries: list[Entry]) -> EntryRun:
    return EntryRun(b"".join(map(stored, entries)), entries[0].index, len(entries))


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=9), names)
def test_a_push_is_read_as_it_was_written(bodies: list[bytes], group: str) -> None:
    entries = entries_of(bodies)
    push = PushEntryRequest(
        group=group, remote_id="n1", leader_id="n0", term=3, commit_index=4, batch_entry=entries
    )
    found = decode_raw_push(encode_raw_push(push) + run_of(entries).data)
    assert (found.group, found.remote_id, found.leader_id, found.term) == (group, "n1", "n0", 3)
    assert (found.commit_index, found.type) == (4, push.type)
    assert found.entries[0] == entries[0]
    assert list(found.entries) == entries
    assert found.entries[1:] == tuple(entries[1:])


@given(st.data())
def test_a_damaged_push_is_refused_or_is_another_push(data: st.DataObject) -> None:
    entries = entries_of([b"abc", b"", b"defghij"])
    push = PushEntryRequest(group="g", term=3, batch_entry=entries)
    body = bytearray(encode_raw_push(push) + run_of(entries).data)
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    else:
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = decode_raw_push(bytes(body))
    except MalformedBodyError:
        return
    indexes = [entry.index for entry in found.entries]
    assert indexes == list(range(indexes[0], indexes[0] + len(indexes)))


def test_entries_with_a_gap_are_refused() -> None:
    entries = entries_of([b"a", b"b"])
    gap = [entries[0], entries[1]._replace(index=9)]
    with pytest.raises(MalformedBodyError):
        decode_raw_push(encode_raw_push(PushEntryRequest(batch_entry=gap)) + run_of(gap).data)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=9), names, names)
def test_an_append_is_read_as_it_was_written(bodies: list[bytes], group: str, member: str) -> None:
    body = encode_raw_append(encode_append_head(group, member), bodies)
    assert decode_raw_append(body) == (group, member, bodies)
    with pytest.raises(MalformedBodyError):
        decode_raw_append(body[:-1])
    with pytest.raises(MalformedBodyError):
        decode_raw_append(body + b"\0")


@given(st.binary(max_size=40), names)
def test_an_append_of_one_entry_in_json_is_read_quickly(body: bytes, group: str) -> None:
    request = AppendEntryRequest(group=group, remote_id="n0", body=body)
    assert read_append(encode_body(request)) == (group, "n0", [body])
    for other in (AppendEntryRequest(batch_msgs=(body,)), AppendEntryRequest(body=body)):
        assert read_append(encode_body(other)) is None


@given(names, names, st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.integers(0, 1 << 60))
def test_a_leader_writes_its_answers_as_any_other(
    group: str, leader: str, index: int, pos: int, term: int
) -> None:
    response = AppendEntryResponse(group=group, leader_id=leader, index=index, pos=pos, term=term)
    body = appended_text(group, leader) % (index, pos, term)
    assert body == encode_body(response)
    assert read_appended(body) == response


def test_an_answer_that_is_a_refusal_is_read() -> None:
    response = AppendEntryResponse(group="g", code=404, leader_id=None, term=3)
    assert read_appended(encode_body(response)) == response
    with pytest.raises(MalformedBodyError):
        read_appended(b"[")


@given(st.integers(0, 60_000), st.integers(-(1 << 31), (1 << 31) - 1), st.binary(max_size=20))
def test_a_plain_frame_is_a_frame(code: int, opaque: int, body: bytes) -> None:
    command = RemotingCommand(code, flag=FLAG_RESPONSE, opaque=opaque, body=body)
    assert encode_plain_frame(code, FLAG_RESPONSE, opaque, body) == encode_frame(command)
