"""Settings that constructors take as keywords, and those that they take as a whole."""

from typing import Any

import pytest

from pyledger.bookkeeper import AsyncLedgerClient, BookkeeperConfig
from pyledger.client import (
    AsyncAdmin,
    AsyncLitePullConsumer,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    AsyncTransactionProducer,
    Averagely,
    ClientConfig,
    ClientInstance,
    ProducerConfig,
)
from pyledger.errors import ConfigError, IllegalMessageError


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


def transactional(group: str, **options: Any) -> AsyncTransactionProducer:
    return AsyncTransactionProducer(group, **{"check": print} | options)


CLIENT_ARGUMENTS = {"client": {}, "net": 5, "tls": True, "name_servers": ["127.0.0.1:9876"]}
ARGUMENTS: list[tuple[Any, dict[str, Any]]] = [
    *[
        (made, CLIENT_ARGUMENTS | {"config": {}})
        for made in (
            AsyncProducer,
            push_consumer,
            AsyncPullConsumer,
            AsyncLitePullConsumer,
            transactional,
        )
    ],
    (lambda _group, **options: AsyncAdmin(**options), CLIENT_ARGUMENTS),
    (lambda _group, **options: ClientInstance(**options), {"config": {}, "net": 5, "tls": True}),
    (AsyncProducer, {"config": ProducerConfig, "client": ProducerConfig()}),
    (transactional, {"check": "commit"}),
    (AsyncLitePullConsumer, {"strategy": "avg"}),
    (push_consumer, {"strategy": Averagely, "client": "a", "message_model": 5}),
    (AsyncPushConsumer, {"listener": 5, "batch_listener": "print"}),
    (AsyncLedgerClient, {"config": {}, "tls": True, "racks": "rack-1"}),
]


@pytest.mark.parametrize(
    ("made", "name", "value"),
    [(made, name, value) for made, wrong in ARGUMENTS for name, value in wrong.items()],
)
def test_an_argument_of_another_type_is_named(made: Any, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=r"is (of|not of) type |is a class") as caught:
        made("sqlite:meta", **{name: value}) if made is AsyncLedgerClient else made("G", **{name: value})
    assert caught.value.field == name


@pytest.mark.parametrize("first", [5, None, b"G"])
@pytest.mark.parametrize("made", [AsyncProducer, push_consumer, AsyncPullConsumer, AsyncLedgerClient])
def test_a_first_argument_of_another_type_is_named(made: Any, first: Any) -> None:
    with pytest.raises(ConfigError, match=r"^(group|metadata): .* is of type"):
        made(first)


def test_a_broadcasting_consumer_checks_its_client_too() -> None:
    with pytest.raises(ConfigError, match=r"client: \{\} is of type dict; give .* ClientConfig"):
        push_consumer("G", client={}, message_model="broadcasting")


@pytest.mark.parametrize("topic", ["", " ", "a b"])
def test_a_topic_that_no_broker_has_cannot_be_subscribed_to(topic: str) -> None:
    with pytest.raises(IllegalMessageError, match="topic"):
        push_consumer("G").subscribe(topic)


@pytest.mark.parametrize("kind", [ClientConfig, BookkeeperConfig])
def test_an_unknown_setting_of_a_class_leads_to_the_nearest(kind: Any) -> None:
    name = "api_timeout_ms" if kind is ClientConfig else "read_timeout_ms"
    with pytest.raises(ConfigError, match=f"{name[:-1]}: unknown setting; did you mean {name}"):
        kind(**{name[:-1]: 5})
    with pytest.raises(ConfigError, match=f"{kind.__name__}: 5 is given without a name"):
        kind(5)
    assert getattr(kind(**{name: 500}), name) == 500
