"""Settings that constructors take as keywords, and those that they take as a whole."""

from typing import Any

import pytest

from pyledger.client import AsyncLitePullConsumer, AsyncProducer, AsyncPullConsumer, AsyncPushConsumer
from pyledger.errors import ConfigError


def push_consumer(group: str, **options: Any) -> AsyncPushConsumer:
    return AsyncPushConsumer(group, listener=lambda _: None, **options)


@pytest.mark.parametrize("made", [AsyncProducer, push_consumer, AsyncPullConsumer, AsyncLitePullConsumer])
def test_a_setting_of_the_client_is_led_to_its_argument(made: Any) -> None:
    for option, argument in (
        ("access_key", "client=ClientConfig"),
        ("AccessKey", "client=ClientConfig"),
        ("frame_max_bytes", "net=NetConfig"),
        ("client_enabled", "tls=TlsConfig"),
    ):
        with pytest.raises(ConfigError, match=f"{option}: is a setting of .*; put it into {argument}"):
            made("G", **{option: "x"})
    with pytest.raises(ConfigError, match="unknown setting"):
        made("G", acces_key="x")
