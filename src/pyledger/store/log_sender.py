"""A log into a slave's socket, from mapped memory: `LogSender`. What the slave says to it: `SlaveReports`."""

from pyledger._core import LogSender, SlaveReports

__all__ = ["LogSender", "SlaveReports"]
