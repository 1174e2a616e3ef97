"""What a broker may be, and what it does not do then."""

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
"""Requests that put something."""


def check_role(config: BrokerConfig, ha: HaConfig) -> None:
    """A master has the id 0, a slave has not.

    Raises:
        ConfigError: it is otherwise.
    """
    if (ha.role == SLAVE) != (config.broker_id != 0):
        raise ConfigError(
            "broker_id",
            f"{config.broker_id} is no id of a {ha.role.replace('_', ' ')}",
            "a master has brokerId 0, a slave 1 or more; brokerRole says which it is",
        )


def always() -> bool:
    """A slave takes nothing that would be put."""
    return True
