"""Our clients with our broker."""

from pathlib import Path

import pytest

from pyledger.broker.single_node import SingleNode
from pyledger.net.loop import run
from tests.client.scenarios import BASIC, Scenario

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("scenario", BASIC, ids=lambda one: one.__name__)
def test_clients_with_our_broker(tmp_path: Path, scenario: Scenario) -> None:
    async def main() -> None:
        node = SingleNode(tmp_path / "store", name_server_port=0, port=0)
        await node.start()
        try:
            await scenario(node.address, "X", str(tmp_path))
        finally:
            await node.close()

    run(main())
