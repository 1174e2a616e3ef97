"""Frozen dataclasses with slots whose methods are generated on first use.

Most of the time to import a dataclass is spent on compiling its methods. A broker has more than a hundred
header and body classes, and needs a dozen at start-up.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast, dataclass_transform, get_origin

T = TypeVar("T")

FIELDS = "__dataclass_fields__"
MADE = (
    "__dataclass_params__", "__match_args__", "__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__",
    "__getstate__", "__setstate__", FIELDS, "__init__",
)  # fmt: skip
LOCK = threading.RLock()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def lazy_dataclass(*, kw_only: bool = False) -> Callable[[type[T]], type[T]]:
    """Decorate a class like `dataclass(frozen=True, slots=True)`."""

    def decorate(kind: type[T]) -> type[T]:
        own = {k: v for k, v in vars(kind).items() if k not in {"__dict__", "__weakref__"}}
        names = [name for name, hint in kind.__annotations__.items() if not is_class_variable(hint)]
        bare = {k: v for k, v in own.items() if k not in names}
        slotted: Any = type(kind.__name__, kind.__bases__, bare | {"__slots__": tuple(names)})
        slotted.__qualname__ = kind.__qualname__
        UnbuiltMethods(slotted, own, kw_only=kw_only)
        return cast(type[T], slotted)

    return decorate


def is_class_variable(hint: object) -> bool:
    """Return True if an annotation is a ClassVar, not a field."""
    return hint is ClassVar or get_origin(hint) is ClassVar


class UnbuiltMethods:
    """Placeholder for the fields and the `__init__` of a class until one of them is used."""

    def __init__(self, kind: type, own: dict[str, Any], *, kw_only: bool) -> None:
        self._kind, self._own, self._kw_only = kind, own, kw_only

        def make_and_begin(instance: Any, *args: Any, **values: Any) -> None:
            self.make()
            type(instance).__init__(instance, *args, **values)

        setattr(kind, FIELDS, self)
        kind.__init__ = make_and_begin  # type: ignore[misc]

    def __get__(self, instance: object, owner: type) -> object:
        """Generate the methods and return the fields."""
        self.make()
        return getattr(owner, FIELDS)

    def make(self) -> None:
        """Generate the methods with `dataclass` on a copy of the class, and take them."""
        with LOCK:
            if vars(self._kind)[FIELDS] is not self:
                return
            twin = type(self._kind.__name__, self._kind.__bases__, self._own)
            made = vars(dataclass(frozen=True, slots=True, kw_only=self._kw_only)(twin))
            for name in MADE:
                if name in made:
                    setattr(self._kind, name, made[name])
