"""`StoredMessage` against the fields that went into a record, and against the model's reading of them."""

import pickle
import struct
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import pyledger.store  # noqa: F401  hands the codecs to the native module
from pyledger._core import StoredMessage, read_message, read_messages
from pyledger.errors import CorruptBodyError, CorruptRecordError, OffsetOutOfRangeError
from tests.core.log.log_files import RecordFields, write_log
from tests.models.commit_log import Record


def read_one(fields: RecordFields, folder: Path, lead: int = 0) -> StoredMessage:
    """Write the record behind `lead` bytes' worth of others, and read it back."""
    log = write_log(folder / "commitlog", [RecordFields(body=b"a" * lead), fields])
    return read_message(log.view(), log.offsets[1])


def test_message_gives_every_field(tmp_path: Path) -> None:
    fields = RecordFields(
        topic="größe".encode(), body=b"\x00\x01body", queue_id=7, queue_offset=2**40, flag=-5,
        properties={"TAGS": "标签", "KEYS": "k1 k2", "UNIQ_KEY": "U", "a": "b\x01c"}, reconsume_times=3,
        prepared_transaction_offset=12, sys_flag=0x8, born_host=("2001:db8::1", 1), store_timestamp=9,
    )  # fmt: skip
    message = read_one(fields, tmp_path)
    assert message.topic == "größe"
    assert (message.queue_id, message.queue_offset, message.flag) == (7, 2**40, -5)
    assert (message.body, bytes(message.body_view), message.plain_body) == (fields.body,) * 3
    assert (message.body_length, message.body_crc) == (6, zlib.crc32(fields.body) & 0x7FFFFFFF)
    assert message.properties == {"TAGS": "标签", "KEYS": "k1 k2", "UNIQ_KEY": "U", "a": "b\x01c"}
    assert (message.tags, message.keys, message.unique_key) == ("标签", "k1 k2", "U")
    assert message.tags_code == 857175
    assert (message.sys_flag, message.transaction_type, message.is_indexed) == (0x18, 8, True)
    assert message.born_host == "[2001:db8:0:0:0:0:0:1]:1"
    assert message.store_host == "10.0.0.7:10911"
    assert (message.born_timestamp, message.store_timestamp) == (1_700_000_000_000, 9)
    assert (message.reconsume_times, message.prepared_transaction_offset) == (3, 12)
    assert message.msg_id == f"0A00000700002A9F{message.physical_offset:016X}"
    assert len(message.record_view) == message.store_size
    assert message.layout == 1
    assert "physical_offset" in repr(message)


def test_message_without_properties_has_no_tags(tmp_path: Path) -> None:
    message = read_one(RecordFields(properties={}), tmp_path)
    assert (message.tags, message.keys, message.unique_key, message.tags_code) == (None, None, None, 0)


@pytest.mark.parametrize(("kind", "indexed"), [(0, True), (4, False), (8, True), (12, False)])
def test_message_prepared_and_rollback_are_not_indexed(tmp_path: Path, kind: int, indexed: bool) -> None:
    assert read_one(RecordFields(sys_flag=kind), tmp_path).is_indexed is indexed


@pytest.mark.parametrize(
    ("delay", "wanted"),
    [("1", 10_000 + 1000), ("18", 10_000 + 7_200_000), ("99", 10_000 + 7_200_000), ("+4", 40_000),
     ("0", 97), ("-1", 97), ("x", 97), ("", 97), ("99999999999999", 97)],
)  # fmt: skip
def test_tags_code_of_delay_topic_is_delivery_time(tmp_path: Path, delay: str, wanted: int) -> None:
    properties = {"TAGS": "a", "DELAY": delay}
    fields = RecordFields(topic=b"SCHEDULE_TOPIC_XXXX", properties=properties, store_timestamp=10_000)
    assert read_one(fields, tmp_path).tags_code == wanted
    plain = RecordFields(topic=b"orders", properties=properties, store_timestamp=10_000)
    assert read_one(plain, tmp_path / "other").tags_code == 97


def test_mapped_ipv4_address_is_printed_as_java_does(tmp_path: Path) -> None:
    fields = RecordFields(born_host=("::ffff:1.2.3.4", 80), store_host=("::", 0))
    message = read_one(fields, tmp_path)
    assert (message.born_host, message.store_host) == ("1.2.3.4:80", "[0:0:0:0:0:0:0:0]:0")


def test_read_message_names_offset_and_problem(tmp_path: Path) -> None:
    log = write_log(tmp_path / "commitlog", [RecordFields(), RecordFields()])
    view = log.view()
    with pytest.raises(OffsetOutOfRangeError):
        read_message(view, 1 << 40)
    with pytest.raises(OffsetOutOfRangeError):
        read_message(view, -1)
    with pytest.raises(CorruptRecordError, match="unknown magic") as caught:
        read_message(view, log.offsets[1] + 1)
    assert caught.value.physical_offset == log.offsets[1] + 1
    log.edit(log.offsets[1] + 88, b"B")
    with pytest.raises(CorruptRecordError, match="CRC"):
        read_message(view, log.offsets[1])
    assert read_message(view, log.offsets[1], check=False).body == b"Body"


def test_read_messages_follows_queue_units(tmp_path: Path) -> None:
    log = write_log(tmp_path / "commitlog", [RecordFields(body=b"%d" % i) for i in range(9)])
    size_bytes = read_message(log.view(), log.offsets[0]).store_size
    units = b"".join(struct.pack(">qiq", log.offsets[i], size_bytes, 0) for i in (8, 0, 3))
    assert [m.body for m in read_messages(log.view(), units)] == [b"8", b"0", b"3"]
    with pytest.raises(CorruptRecordError):
        read_messages(log.view(), struct.pack(">qiq", 5, 1, 0))
    with pytest.raises(CorruptRecordError, match="another size"):
        read_messages(log.view(), struct.pack(">qiq", 0, 0, 0))


def test_message_cannot_be_pickled(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="pickle the attributes"):
        pickle.dumps(read_one(RecordFields(), tmp_path))


def test_body_view_keeps_file_open(tmp_path: Path) -> None:
    log = write_log(tmp_path / "commitlog", [RecordFields()])
    view = log.view()
    body = read_message(view, 0).body_view
    with pytest.raises(BufferError):
        view.files[0].close()
    body.release()
    view.files[0].close()


def test_compressed_body_is_decompressed_on_request(tmp_path: Path) -> None:
    message = read_one(RecordFields(body=zlib.compress(b"plain" * 100), sys_flag=1), tmp_path)
    assert message.plain_body == b"plain" * 100
    assert message.body[:1] == b"\x78"
    with pytest.raises(CorruptBodyError, match=f"physical offset {message.physical_offset}"):
        message.decompress_body(limit_bytes=499)


SAME_IN_MODEL = (
    "store_size", "layout", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag",
    "born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset", "body", "topic",
    "properties",
)  # fmt: skip
HOSTS = st.tuples(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str), st.integers(0, 65535))


@settings(deadline=None)
@given(
    body=st.binary(max_size=300),
    topic=st.binary(max_size=127),
    properties_raw=st.one_of(
        st.binary(max_size=200),
        st.lists(st.sampled_from([b"TAGS", b"KEYS", b"\x01", b"\x02", b"a", b"\xff", "é".encode()])).map(
            b"".join
        ),
    ),
    layout=st.sampled_from([1, 2]),
    sys_flag=st.integers(0, 0x7FF).map(lambda bits: bits & ~0x30),
    hosts=st.tuples(HOSTS, HOSTS),
    times=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3),
)
@example(b"", b"", b"", 2, 0, (("1.2.3.4", 5), ("::1", 6)), (0, 0, 0))
def test_message_equals_model(
    body: bytes, topic: bytes, properties_raw: bytes, layout: int, sys_flag: int,
    hosts: tuple[tuple[str, int], tuple[str, int]], times: tuple[int, int, int],
) -> None:  # fmt: skip
    fields = RecordFields(
        body=body, topic=topic, properties_raw=properties_raw, layout=layout, sys_flag=sys_flag,
        born_host=hosts[0], store_host=hosts[1], born_timestamp=times[0], store_timestamp=times[1],
        queue_offset=times[2],
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        message = read_one(fields, Path(folder), lead=40)
        model = Record.parse(fields.encode(message.physical_offset))
        for name in SAME_IN_MODEL:
            assert getattr(message, name) == getattr(model, name), name
        for name in ("born_host", "store_host"):
            if "::ffff:" not in str(hosts):
                assert getattr(message, name) == getattr(model, name)
        assert message.tags == model.properties.get("TAGS")
        assert message.keys == model.properties.get("KEYS")
