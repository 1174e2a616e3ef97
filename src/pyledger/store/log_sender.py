"""What brings a store's log to a slave: frames from mapped memory into a socket, see `LogSender`."""

from pyledger._core import LogSender

__all__ = ["LogSender"]
