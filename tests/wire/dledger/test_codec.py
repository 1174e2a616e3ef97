"""Requests of our own groups: what is written is read again, damage is refused, answers are DLedger's."""

import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyledger.errors import MalformedBodyError
from pyledger.protocol.dledger.messages import (
    ENTRY_HEADER,
    AppendEntryRequest,
    AppendEntryResponse,
    BodyBatch,
    Entry,
    EntryBatch,
    PushEntryRequest,
)
from pyledger.protocol.dledger.response_codes import APPEND_RAW, PUSH_RAW, RequestCode
from pyledger.wire.dledger.bodies import decode_response, encode_body, unbase64
from pyledger.wire.dledger.codec import (
    OFFER,
    DLedgerCodec,
    append_head,
    append_responses,
    decode_request,
)
from pyledger.wire.remoting.command import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RemotingCommand,
    decode,
    encode_frame,
)
from pyledger.wire.remoting.native_codec import AnswerDecoder, AppendBatch, AppendDecoder, AppendFuture

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


def batch_of(entries: list[Entry]) -> EntryBatch:
    return EntryBatch(b"".join(map(stored, entries)), entries[0].index, len(entries))


def binary() -> DLedgerCodec:
    """Of a connection whose peer has offered binary requests."""
    codec = DLedgerCodec()
    assert codec.learn(RemotingCommand(200, flag=FLAG_RESPONSE, ext_fields=dict(OFFER)))
    return codec


def pushed(body: bytes) -> PushEntryRequest:
    request = decode_request(PUSH_RAW, memoryview(body))
    assert isinstance(request, PushEntryRequest)
    return request


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=9), names)
def test_a_push_is_read_as_it_was_written(bodies: list[bytes], group: str) -> None:
    entries = entries_of(bodies)
    push = PushEntryRequest(
        group=group,
        remote_id="n1",
        leader_id="n0",
        term=3,
        commit_index=4,
        batch_entry=batch_of(entries),
    )
    found = pushed(binary().encode(push).body)
    assert (found.group, found.remote_id, found.leader_id, found.term) == (group, "n1", "n0", 3)
    assert (found.commit_index, found.type) == (4, push.type)
    assert found.entries[0] == entries[0]
    assert list(found.entries) == entries
    assert found.entries[1:] == tuple(entries[1:])


@given(st.data())
def test_a_damaged_push_is_rejected_or_is_another_push(data: st.DataObject) -> None:
    entries = entries_of([b"abc", b"", b"defghij"])
    push = PushEntryRequest(group="g", term=3, batch_entry=batch_of(entries))
    body = bytearray(binary().encode(push).body)
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body) - 1)) :]
    else:
        body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = pushed(bytes(body))
    except MalformedBodyError:
        return
    indexes = [entry.index for entry in found.entries]
    assert indexes == list(range(indexes[0], indexes[0] + len(indexes)))


def test_entries_with_a_gap_are_rejected() -> None:
    entries = entries_of([b"a", b"b"])
    gap = [entries[0], entries[1]._replace(index=9)]
    with pytest.raises(MalformedBodyError):
        pushed(binary().encode(PushEntryRequest(batch_entry=batch_of(gap))).body)


def plain(frame: bytes | memoryview) -> AppendEntryRequest:
    """An append as Python reads it."""
    command = decode(frame)
    request = decode_request(command.code, memoryview(command.body))
    assert isinstance(request, AppendEntryRequest)
    return request


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=9), names, names)
def test_an_append_is_read_as_it_was_written(bodies: list[bytes], group: str, member: str) -> None:
    frame = append_head(group, member).encode(7, bodies)
    command = decode(frame[4:])
    assert frame == encode_frame(RemotingCommand(APPEND_RAW, opaque=7, body=command.body))
    found = plain(frame[4:])
    assert (found.group, found.remote_id) == (group, member)
    if len(bodies) == 1:
        assert (found.body, found.batch_msgs) == (bodies[0], None)
    else:
        assert isinstance(found.batch_msgs, BodyBatch)
        assert (found.batch_msgs, len(found.batch_msgs)) == (tuple(bodies), len(bodies))
        assert found.batch_msgs[1:] == tuple(bodies[1:])
    for damaged in (bytes(command.body)[:-1], bytes(command.body) + b"\0"):
        with pytest.raises(MalformedBodyError):
            decode_request(APPEND_RAW, memoryview(damaged))


def test_requests_are_json_until_the_peer_offers_more() -> None:
    codec, push = DLedgerCodec(), PushEntryRequest(batch_entry=batch_of(entries_of([b"a"])))
    codes = [codec.encode(push).code, decode(codec.encode_append("g", "n0", 1, [b"a"])[4:]).code]
    assert codes == [RequestCode.PUSH, RequestCode.APPEND]
    assert codec.learn(RemotingCommand(200, flag=FLAG_RESPONSE))
    assert not codec.binary
    codec = binary()
    codes = [codec.encode(push).code, decode(codec.encode_append("g", "n0", 1, [b"a"])[4:]).code]
    assert codes == [PUSH_RAW, APPEND_RAW]
    # A peer of another kind answers requests that it does not know with a code of remoting.
    assert not codec.learn(RemotingCommand(3, flag=FLAG_RESPONSE))
    assert not codec.binary


@given(st.lists(st.binary(max_size=40), max_size=3), names)
def test_an_append_in_json_is_read_as_it_was_written(bodies: list[bytes], group: str) -> None:
    command = decode(DLedgerCodec().encode_append(group, "n1", 7, bodies)[4:])
    assert (command.code, command.opaque) == (RequestCode.APPEND, 7)
    found = decode_request(command.code, memoryview(command.body))
    assert isinstance(found, AppendEntryRequest)
    assert (found.group, found.remote_id) == (group, "n1")
    assert list((found.body,) if found.batch_msgs is None else found.batch_msgs) == bodies


def test_a_codec_belongs_to_one_connection() -> None:
    first: dict[object, object] = {}
    codec = DLedgerCodec.of(first)
    assert codec is DLedgerCodec.of(first)
    assert codec is not DLedgerCodec.of({})


@given(st.data())
def test_appends_that_come_together_are_batches_of_what_python_reads(data: st.DataObject) -> None:
    groups, opaques, frames = st.sampled_from(["g", "h", "gr\u00fcn", 'q"uote']), [], []
    for opaque in range(data.draw(st.integers(1, 8))):
        group, body = data.draw(groups), data.draw(st.binary(max_size=20))
        request = AppendEntryRequest(group=group, remote_id="n0", body=body)
        kind = data.draw(st.sampled_from(["raw", "json", "json", "batch", "oneway"]))
        if kind == "raw":
            frames.append(append_head(group, "n0").encode(opaque, (body,)))
        elif kind == "batch":
            frames.append(append_head(group, "n0").encode(opaque, (body, body)))
        else:
            flag = FLAG_ONEWAY if kind == "oneway" else 0
            command = RemotingCommand(RequestCode.APPEND, flag=flag, opaque=opaque, body=encode_body(request))
            frames.append(encode_frame(command))
        opaques.append(opaque)
    found: list[tuple[int, AppendEntryRequest]] = []
    for item in AppendDecoder().feed(b"".join(frames)):
        if isinstance(item, AppendBatch):
            assert [decode(frame).opaque for frame in item.frames] == item.opaques
            for opaque, body, frame in zip(item.opaques, item.bodies, item.frames, strict=True):
                request = AppendEntryRequest(group=item.group, remote_id=item.remote_id, body=body)
                assert plain(frame) == request
                found.append((opaque, request))
        else:
            found.append((decode(item).opaque, plain(item)))
    assert found == [(n, plain(frame[4:])) for n, frame in enumerate(frames)]


def test_appends_for_one_member_are_one_run() -> None:
    head, request = append_head("g", "n0"), AppendEntryRequest(group="g", remote_id="n0", body=b"two")
    java = encode_frame(RemotingCommand(RequestCode.APPEND, opaque=2, body=encode_body(request)))
    other = append_head("h", "n0").encode(3, (b"three",))
    received = head.encode(1, (b"one",)) + java + other + head.encode(4, (b"",))
    runs = AppendDecoder().feed(received)
    assert all(isinstance(run, AppendBatch) for run in runs)
    assert [(run.group, run.opaques, run.bodies) for run in runs if isinstance(run, AppendBatch)] == [
        ("g", [1, 2], [b"one", b"two"]),
        ("h", [3], [b"three"]),
        ("g", [4], [b""]),
    ]


@given(st.data())
def test_a_damaged_append_is_what_python_reads_or_left_to_it(data: st.DataObject) -> None:
    request = AppendEntryRequest(group="g", remote_id="n0", body=b"abcdefg")
    java = encode_frame(RemotingCommand(RequestCode.APPEND, opaque=2, body=encode_body(request)))
    frame = bytearray(data.draw(st.sampled_from([java, append_head("g", "n0").encode(1, (b"abcdefg",))])))
    frame[data.draw(st.integers(4, len(frame) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for item in AppendDecoder().feed(bytes(frame)):
        if isinstance(item, AppendBatch):
            wanted = plain(item.frames[0])
            assert (item.group, item.remote_id, item.bodies) == (
                wanted.group,
                wanted.remote_id,
                [wanted.body],
            )


@given(st.binary(max_size=30), st.sampled_from(["", "=", "A", "A=", "\n"]))
def test_base64_is_read_as_python_reads_it(body: bytes, behind: str) -> None:
    text = binascii.b2a_base64(body, newline=False).decode() + behind
    json = f'{{"body":"{text}","group":"g","remoteId":"n0"}}'.encode()
    frame = encode_frame(RemotingCommand(RequestCode.APPEND, opaque=2, body=json))
    (item,) = AppendDecoder().feed(frame)
    if isinstance(item, AppendBatch):
        assert item.bodies == [unbase64(text)]
    else:
        assert behind


@given(names, names, st.integers(0, 1 << 60), st.integers(0, 1 << 60), st.integers(0, 1 << 58))
def test_a_leader_writes_its_answers_as_any_other(
    group: str, leader: str, index: int, pos: int, term: int
) -> None:
    places, opaques = [pos, pos + 300, pos + 301], [5, -6, (1 << 31) - 1]
    wanted = b""
    for opaque, place in zip(opaques, places, strict=True):
        response = AppendEntryResponse(group=group, leader_id=leader, index=index, pos=place, term=term)
        body = encode_body(response)
        wanted += response_frame(body, opaque)
        assert answer_of(body, opaque) == response
        index += 1
    assert append_responses(group, leader).encode(opaques, index - 3, places, term) == wanted


def response_frame(body: bytes, opaque: int) -> bytes:
    return encode_frame(RemotingCommand(200, flag=FLAG_RESPONSE, opaque=opaque, body=body))


class Box:
    """Takes what a future would be given."""

    value: object = None

    def done(self) -> bool:
        return self.value is not None

    def set_result(self, value: object) -> None:
        self.value = value


def answer_of(body: bytes, opaque: int = 3) -> object:
    """Return an append's response, decoded natively or by Python."""
    box = Box()
    calls: dict[int, AppendFuture] = {opaque: AppendFuture(box)}
    for item in AnswerDecoder(1 << 20, calls).feed(response_frame(body, opaque)):
        if isinstance(item, AppendFuture):
            assert not calls
            item.finish(None)
    if box.value is None:
        return decode_response(AppendEntryRequest(), memoryview(body))
    return box.value


@given(st.data())
def test_a_damaged_answer_is_what_python_reads(data: st.DataObject) -> None:
    response = AppendEntryResponse(group="g", leader_id="n0", index=12, pos=3456, term=7)
    body = bytearray(encode_body(response))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        wanted = decode_response(AppendEntryRequest(), memoryview(body))
    except MalformedBodyError:
        with pytest.raises(MalformedBodyError):
            answer_of(bytes(body))
        return
    assert answer_of(bytes(body)) == wanted


def test_a_rejection_of_a_push_is_left_to_python() -> None:
    response = AppendEntryResponse(group="g", code=404, leader_id=None, term=3)
    assert answer_of(encode_body(response)) == response
