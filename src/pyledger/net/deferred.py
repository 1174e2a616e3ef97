"""An answer that is not known yet: as a future, but told by a plain call and not in the loop's next turn."""

import asyncio
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class Deferred(Protocol[R_co]):
    """What comes later: a future, or a `DeferredResponse`."""

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """Have somebody told of it when it has come."""

    def cancelled(self) -> bool:
        """Whether nobody wants it any more."""

    def exception(self) -> BaseException | None:
        """Why it does not come."""

    def result(self) -> R_co:
        """What came."""


class DeferredResponse(Generic[T]):
    """Comes once, to the one who asked for it before it came."""

    __slots__ = ("_error", "_told", "_value")

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._error: BaseException | None = None
        self._value: T | None = None
        self._told: Callable[[Any], object] | None = None

    def add_done_callback(self, told: Callable[[Any], object], /) -> None:
        """Have somebody told of it when it has come."""
        self._told = told

    def set_result(self, value: T) -> None:
        """This is the answer."""
        self._value = value
        self._tell()

    def set_exception(self, error: BaseException) -> None:
        """There is none."""
        self._error = error
        self._tell()

    def done(self) -> bool:
        """Nobody can have cancelled it."""
        return False

    def cancelled(self) -> bool:
        """Nobody can have cancelled it."""
        return False

    def exception(self) -> BaseException | None:
        """Why there is none."""
        return self._error

    def result(self) -> T:
        """What came.

        Raises:
            BaseException: why there is none.
        """
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # it has come

    def _tell(self) -> None:
        if self._told is None:
            return
        try:
            self._told(self)
        except Exception as error:  # noqa: BLE001 - what told this has others to tell, too
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a late answer was not taken", "exception": error}
            )
