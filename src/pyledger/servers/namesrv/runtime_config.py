"""Settings of a running name server that an operator may change.

Differs: only the settings below can be changed, whatever the black list says, and a change is not kept in a
file.

Source: RocketMQ namesrv/.../DefaultRequestProcessor.java (updateConfig, getConfig).
"""

from collections.abc import Mapping

from pyledger.config.fields import settings_of
from pyledger.config.namesrv import NamesrvConfig

CHANGEABLE = frozenset(
    {
        "delete_topic_with_broker_registration",
        "enable_all_topic_list",
        "enable_topic_list",
        "need_wait_for_service",
        "notify_min_broker_id_changed",
        "order_message_enable",
        "return_order_topic_config_to_broker",
        "scan_interval_ms",
        "support_acting_master",
        "wait_for_service_seconds",
    }
)


def refused_setting(config: NamesrvConfig, wanted: Mapping[str, str]) -> str | None:
    """Why a change by upstream's names is refused, or None."""
    changeable = {one.upstream for one in settings_of(type(config)) if one.name in CHANGEABLE}
    for name in wanted:
        if name in config.config_black_list.split(";"):
            return "Can not update config in black list."
        if name not in changeable:
            return f"{name} cannot be changed while the name server runs"
    return None
