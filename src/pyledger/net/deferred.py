"""A result that may come later. Unlike a future it calls back at once, not in the loop's next iteration."""

import asyncio
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")
U = TypeVar("U")


class Deferred(Generic[T]):
    """Completed once, with a value or an error; nothing cancels it."""

    __slots__ = ("_callbacks", "_done", "_error", "_value")

    def __init__(self) -> None:
        """Not completed yet."""
        self._done = False
        self._error: BaseException | None = None
        self._value: T | None = None
        self._callbacks: list[Callable[[Deferred[T]], object]] | None = None

    def set_result(self, value: T) -> None:
        """Complete with a value."""
        self._value = value
        self._complete()

    def set_exception(self, error: BaseException) -> None:
        """Complete with an error."""
        self._error = error
        self._complete()

    def add_done_callback(self, callback: "Callable[[Deferred[T]], object]", /) -> None:
        """Call `callback` with this once it is completed: at once if it is."""
        if self._done:
            self._call(callback)
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def then(self, function: Callable[[T], U]) -> "Deferred[U]":
        """Return what `function` makes of the value. An error of either completes it."""
        result: Deferred[U] = Deferred()
        self.add_done_callback(partial(result._follow, function))
        return result

    def done(self) -> bool:
        """Return whether it is completed."""
        return self._done

    def cancelled(self) -> bool:
        """Return False, as a future that nothing cancels."""
        return False

    def exception(self) -> BaseException | None:
        """Return the error; None while it is not completed, and when it has a value."""
        return self._error

    def result(self) -> T:
        """Return the value of a completed one.

        Raises:
            BaseException: the error that it was completed with.
        """
        if self._error is not None:
            raise self._error
        assert self._done
        return self._value  # type: ignore[return-value]  # it has been set

    def peek(self) -> T | None:
        """Return the value, as `result`; None while it is not completed."""
        return self.result() if self._done else None

    def __await__(self) -> Generator[Any, None, T]:
        """Wait until it is completed."""
        if not self._done:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.add_done_callback(lambda _: None if future.done() else future.set_result(None))
            yield from future.__await__()
        return self.result()

    def _complete(self) -> None:
        self._done = True
        if self._callbacks is not None:
            callbacks, self._callbacks = self._callbacks, None
            for callback in callbacks:
                self._call(callback)

    def _call(self, callback: "Callable[[Deferred[T]], object]") -> None:
        try:
            callback(self)
        except Exception as error:  # noqa: BLE001 - what completed this has others to complete, too
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a callback of a result failed", "exception": error}
            )

    def _follow(self, function: "Callable[[U], T]", source: "Deferred[U]") -> None:
        """Complete with what a function makes of another's value."""
        try:
            value = function(source.result())
        except Exception as error:  # noqa: BLE001 - what awaits this gets it
            self.set_exception(error)
            return
        self.set_result(value)


def completed(value: T) -> Deferred[T]:
    """Return a result that is there."""
    result: Deferred[T] = Deferred()
    result.set_result(value)
    return result
