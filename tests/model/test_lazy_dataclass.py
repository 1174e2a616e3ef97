"""Value types against the dataclasses that they stand for."""

import copy
import dataclasses
import pickle
import threading
from dataclasses import FrozenInstanceError, dataclass, field
from typing import ClassVar

import pytest

from pyledger.model.lazy_dataclass import lazy_dataclass


@lazy_dataclass()
class Point:
    """A place."""

    UNIT: ClassVar[str] = "mm"
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    kind: str = field(default="point", init=False)

    def shifted(self) -> "Point":
        return dataclasses.replace(self, x=self.x + 1)


@lazy_dataclass(kw_only=True)
class Named(Point):
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Plain:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list)
    kind: str = field(default="point", init=False)


def test_it_has_everything_that_a_frozen_dataclass_with_slots_has() -> None:
    one, plain = Point(1), Plain(1)
    assert repr(one) == repr(plain).replace("Plain", "Point")
    assert (one.x, one.y, one.tags, one.kind, one.UNIT) == (1, 2, [], "point", "mm")
    assert one == Point(1, 2, [])
    assert one != Point(2)
    assert one != plain
    assert one.tags is not Point(1).tags
    assert Point.__slots__ == ("x", "y", "tags", "kind")
    assert not hasattr(one, "__dict__")
    assert Point.__match_args__ == Plain.__match_args__
    assert [f.name for f in dataclasses.fields(Point)] == [f.name for f in dataclasses.fields(Plain)]
    assert dataclasses.asdict(one) == dataclasses.asdict(plain)
    assert one.shifted() == Point(2)
    assert copy.deepcopy(one) == one == pickle.loads(pickle.dumps(one))
    with pytest.raises(FrozenInstanceError):
        one.x = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del one.x  # type: ignore[misc]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing"):
        Point()  # type: ignore[call-arg]


def test_one_may_inherit_from_another() -> None:
    assert dataclasses.is_dataclass(Named)
    one = Named(1, name="A")
    assert repr(one) == "Named(x=1, y=2, tags=[], kind='point', name='A')"
    assert one != Point(1)
    with pytest.raises(TypeError):
        Named(1, 2, [], "A")  # type: ignore[misc]


def test_hashes_are_those_of_the_fields() -> None:
    @lazy_dataclass()
    class Pair:
        a: int
        b: str = "b"

    assert {Pair(1), Pair(1, "b"), Pair(2)} == {Pair(2), Pair(1)}


def first_in_threads(count: int) -> list[int]:
    @lazy_dataclass()
    class Fresh:
        number: int

    found: list[int] = []
    start = threading.Barrier(count)

    def make(number: int) -> None:
        start.wait()
        found.append(Fresh(number).number)

    threads = [threading.Thread(target=make, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found)


def test_many_threads_may_be_the_first() -> None:
    for _ in range(20):
        assert first_in_threads(4) == [0, 1, 2, 3]
