"""Settings of a running name server, as text: shown to anybody, changed by an operator within limits.

Differs: only the settings below can be changed, whatever the black list says, and a change is not kept in a
file.

Source: RocketMQ namesrv/.../DefaultRequestProcessor.java (updateConfig, getConfig).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyledger.config.fields import convert, settings_of
from pyledger.config.namesrv import NamesrvConfig
from pyledger.config.net import NetConfig

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


def config_text(config: NamesrvConfig, net: NetConfig) -> str:
    """Properties by upstream's names; paths only where an operator may change things."""
    lines = []
    for part in (config, net):
        for one in settings_of(type(part)):
            if one.upstream is None or one.name.startswith("client_"):
                continue
            if one.name.endswith("_path") and not config.admin_enabled:
                continue
            value = getattr(part, one.name)
            lines.append(f"{one.upstream}={str(value).lower() if isinstance(value, bool) else value}\n")
    return "".join(sorted(lines))


def refused_setting(config: NamesrvConfig, wanted: Mapping[str, str]) -> str | None:
    """Why a change by upstream's names is refused, or None."""
    changeable = {one.upstream for one in settings_of(type(config)) if one.name in CHANGEABLE}
    for name in wanted:
        if name in config.config_black_list.split(";"):
            return "Can not update config in black list."
        if name not in changeable:
            return f"{name} cannot be changed while the name server runs"
    return None


def changed_config(config: NamesrvConfig, wanted: Mapping[str, str]) -> NamesrvConfig:
    """Settings after a change.

    Args:
        config: The settings before.
        wanted: Values by upstream's names, none of them refused.

    Raises:
        ConfigError: a value is wrong.
    """
    by_name = {one.upstream: one for one in settings_of(type(config))}
    values: dict[str, Any] = {by_name[name].name: convert(by_name[name], wanted[name]) for name in wanted}
    return replace(config, **values)
