"""Our clients with our broker."""

from dataclasses import replace
from pathlib import Path

import pytest

from pyledger.net.loop import run
from pyledger.servers.local.rocketmq import OPEN_DELIVERY, LocalRocketMQ
from tests.client.scenarios import (
    BASIC,
    FURTHER,
    Scenario,
    delayed_messages_wait,
    timed_messages_wait,
    transactions_end_as_told,
)

pytestmark = pytest.mark.timeout(300)

DELIVERY = replace(OPEN_DELIVERY, transaction_timeout_ms=4000, transaction_check_interval_ms=1000)
WAITING = {delayed_messages_wait, timed_messages_wait, transactions_end_as_told}
SCENARIOS = [
    pytest.param(one, marks=[pytest.mark.slow] if one in WAITING else [], id=one.__name__)
    for one in (*BASIC, *FURTHER)
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_clients_with_our_broker(tmp_path: Path, scenario: Scenario) -> None:
    async def main() -> None:
        node = LocalRocketMQ(tmp_path / "store", name_server_port=0, port=0, delivery=DELIVERY)
        await node.start()
        try:
            await scenario(node.address, "X", str(tmp_path))
        finally:
            await node.close()

    run(main())
