"""Spark reads the folder of a broker that runs and takes messages."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.servers.broker.test_live_folder import BATCH, TOPIC, check, sending

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


def test_spark_sees_what_was_acknowledged(session: "SparkSession", tmp_path: Path) -> None:
    with sending(tmp_path) as (node, sent):
        for round_ in (1, 2):
            sent.wait_for(300 * round_)
            least = sent.acknowledged
            rows = session.read.format("pyledger").option("topic", TOPIC).load(str(node.folder)).collect()
            check([bytes(row["body"]) for row in rows], least, sent.acknowledged + BATCH)
            assert len({(row["queueId"], row["queueOffset"]) for row in rows}) == len(rows)


def test_a_broker_and_its_folder_give_the_same_rows(session: "SparkSession", tmp_path: Path) -> None:
    with sending(tmp_path) as (node, sent):
        sent.wait_for(300)
        reader = session.read.format("pyledger").option("topic", TOPIC)
        live = reader.option("namesrv", node.address).load()
        stored = session.read.format("pyledger").option("topic", TOPIC).load(str(node.folder))
        columns = [column for column in live.columns if column != "properties"]
        assert columns == [column for column in stored.columns if column != "properties"]
        assert live.count() >= 300
        assert live.select(columns).exceptAll(stored.select(columns)).count() == 0
