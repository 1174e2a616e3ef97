"""The kit itself: what Java wrote, Java and the model read alike. Proves the judge before it judges us."""

from pathlib import Path

import pytest

from tests.golden.archive import golden_case
from tests.interop.java import JavaStore, JavaStores
from tests.models.recovery import message_line, recover

pytestmark = pytest.mark.java


def test_java_reads_what_java_wrote(java: JavaStore, tmp_path: Path) -> None:
    store = tmp_path / "store"
    mix = "single,batch,zlib,delay,tx,ipv6"
    written = java.write(store, "--count", "120", "--seed", "7", "--mix", mix, "--commitlog-file", "65536")
    read = java.judge(store, "--queries")
    found = recover(store)
    lines = [message_line(units[at]) for _, units in sorted(found.queues.items()) for at in sorted(units)]
    assert read.of_kind("message") == lines
    assert written.summary["records"] == len(lines) + len(found.unindexed) > 120


def test_java_refuses_what_it_refused_before(java_store: JavaStores, tmp_path: Path) -> None:
    store = golden_case("short-file-5").unpack(tmp_path)
    assert java_store("5.3.3").read(store, "--set", "mappedFileSizeCommitLog=1048576").exit == 5
