"""The roles of a broker, and the requests that a slave rejects."""

from pyledger.config.broker import BrokerConfig
from pyledger.config.ha import SLAVE, HaConfig
from pyledger.errors import ConfigError
from pyledger.model.remoting_codes import RequestCode
from pyledger.servers.broker.processors.send_message import SENDS

NOT_AT_SLAVES = frozenset(
    {
        *SENDS,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    }
)
"""Requests that store messages or acks."""


def check_role(config: BrokerConfig, ha: HaConfig) -> None:
    """Check that a master has the id 0 and a slave has another.

    Raises:
        ConfigError: role and id do not fit.
    """
    if (ha.role == SLAVE) != (config.broker_id != 0):
        raise ConfigError(
            "broker_id",
            f"{config.broker_id} is not the id of a {ha.role.replace('_', ' ')}",
            "a master has brokerId 0, a slave 1 or more; brokerRole is the role",
        )


def always() -> bool:
    """Reject a request: slaves take no puts."""
    return True
