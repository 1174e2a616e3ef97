"""What each port of a broker gives to a peer without a signature."""

from pathlib import Path

from pyledger.model.remoting_codes import RequestCode, ResponseCode
from pyledger.servers.broker.server import VIP_DISTANCE
from tests.net.conftest import Run
from tests.net.peers import raw
from tests.servers.broker.peers import broker, make_request, pull, send
from tests.support.ports import free_ports

ACL = '[[users]]\nusername = "root"\npassword = "change-me-long"\nuserType = "Super"\n'


def test_the_second_port_has_the_checks_of_the_first(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        acl = tmp_path / "acl.toml"
        acl.write_text(ACL)
        acl.chmod(0o600)
        (port,) = free_ports(1)
        async with broker(tmp_path, port=port, acl_path=str(acl)):
            for reached in (port, port - VIP_DISTANCE):
                async with raw(reached) as client:
                    for request in (
                        send("T"),
                        pull("T"),
                        make_request(RequestCode.VIEW_MESSAGE_BY_ID, offset=0),
                        make_request(RequestCode.GET_ALL_TOPIC_CONFIG),
                    ):
                        assert (await client.request(request)).code == ResponseCode.NO_PERMISSION

    run(main())
