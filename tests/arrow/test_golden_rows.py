"""Rows of a scan over every golden folder: what consumers reach by both plans, and all records on request."""

import hashlib
from pathlib import Path
from typing import Any

from pyledger import arrow
from tests.golden.archive import GoldenCase, golden_cases

EXTRA = ("bodySha256", "plainSha256", "kind")


def as_rows(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Golden lines in the form of rows, ordered by place."""
    rows = [{k: v for k, v in line.items() if k not in EXTRA and k != "tagsCode"} for line in lines]
    return sorted(rows, key=lambda row: int(row["physicalOffset"]))


def scan_table(path: Path, **options: Any) -> Any:
    """A scan of all columns, in batches small enough that there are several."""
    table = arrow.scan(path, columns=arrow.COLUMNS, batch_rows=500, **options).read_all()
    table.validate(full=True)
    return table


def rows_of(table: Any) -> list[dict[str, Any]]:
    """Rows in the form of golden lines."""
    rows: list[dict[str, Any]] = table.to_pylist()
    for row in rows:
        for name in ("storeTimestamp", "bornTimestamp"):
            row[name] = round(row[name].timestamp() * 1000)
        row["properties"] = dict(row["properties"])
    return rows


def strip(row: dict[str, Any]) -> dict[str, Any]:
    """The columns that golden lines have."""
    return {k: v for k, v in row.items() if k not in ("body", "msgId", "tagsCode")}


def test_scan_gives_what_java_finds(golden: GoldenCase, pristine_store: Path) -> None:
    by_log = scan_table(pristine_store, plan="log")
    by_queue = scan_table(pristine_store, plan="queue")
    order = [(name, "ascending") for name in ("topic", "queueId", "queueOffset")]
    assert by_log.num_rows > 0  # of the folder that Java refuses, what is sound is read all the same
    assert by_log.sort_by(order).equals(by_queue)
    rows = rows_of(by_log)
    if golden.loads:
        assert [strip(row) for row in rows] == as_rows(golden.of_kind("message"))
    lines = {line["physicalOffset"]: line for line in golden.of_kind("message")}
    plain = scan_table(pristine_store, plan="log", decompress=True)["body"]
    for row, plain_body in zip(rows if golden.loads else [], plain, strict=False):
        line = lines[row["physicalOffset"]]
        wanted = line.get("plainSha256", line["bodySha256"])
        assert hashlib.sha256(row["body"]).hexdigest() == line["bodySha256"]
        assert hashlib.sha256(plain_body.as_buffer()).hexdigest() == wanted
        assert row["tagsCode"] == line["tagsCode"]
        assert row["msgId"].endswith(f"{row['physicalOffset']:016X}")


def test_scan_gives_unindexed_records_on_request(tmp_path: Path) -> None:
    for golden in golden_cases("clean-4", "delay-tx-5", "broker-5"):
        store = golden.unpack(tmp_path / golden.name)
        rows = [strip(row) for row in rows_of(scan_table(store, include_unindexed=True))]
        assert rows == as_rows(golden.of_kind("message") + golden.of_kind("unindexed"))
