"""A message is what its fields say."""

import copy
import inspect
import pickle
from dataclasses import MISSING, fields, replace

import pytest

from pyledger.model.message import Message

FULL = Message("T", b"body", 3, "A", "k1 k2", {"p": "v"}, 4, 5, 6, 7, ("10.0.0.1", 9), 8, 9)


class Tagged(Message):
    """As a program may derive one."""


def test_arguments_are_the_fields() -> None:
    values = [getattr(FULL, one.name) for one in fields(Message)]
    assert values == ["T", b"body", 3, "A", "k1 k2", {"p": "v"}, 4, 5, 6, 7, ("10.0.0.1", 9), 8, 9]
    parameters = list(inspect.signature(Message).parameters.values())
    assert [one.name for one in parameters] == [one.name for one in fields(Message)]
    plain = Message("T", b"body")
    for one in fields(Message)[2:]:
        factory = one.default_factory
        assert getattr(plain, one.name) == (one.default if factory is MISSING else factory())
    assert plain.properties is not Message("T", b"body").properties


@pytest.mark.parametrize("message", [FULL, Message("T", b"body"), Tagged("T", b"body", tags="A")], ids=str)
def test_copies_are_equal(message: Message) -> None:
    for other in (
        copy.copy(message),
        copy.deepcopy(message),
        pickle.loads(pickle.dumps(message)),
        replace(message),
    ):
        assert other == message
        assert type(other) is type(message)
    assert replace(message, topic="U").topic == "U"


def test_its_fields_can_be_assigned() -> None:
    message = replace(FULL)
    message.topic = "U"
    assert message == replace(FULL, topic="U")
    assert message != FULL
    with pytest.raises(TypeError, match="unhashable"):
        hash(message)
    with pytest.raises(AttributeError):
        message.unknown = 1  # type: ignore[attr-defined]
    assert not hasattr(FULL, "__dict__")
