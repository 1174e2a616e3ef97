"""Shared code of the commands that run a server: options, log lines, running until a signal."""

import gc
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import click

from pyledger.cli.output import ProblemFoundError, emit, printable, write_line
from pyledger.cli.parameters import NonEmptyPath

F = TypeVar("F", bound=Callable[..., object])
KEPT_BYTES = 16 << 20
MAPPED_BYTES = 8 << 20
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class Service(Protocol):
    """A server that runs from `start` to `close`."""

    @property
    def address(self) -> str:
        """The `host:port` that it listens on."""

    def start(self) -> Awaitable[None]:
        """Start to serve."""

    def close(self) -> Awaitable[None]:
        """Stop serving."""


def begin_start() -> None:
    """Disable garbage collection until `serve` is ready or the command fails: modules are never freed."""
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)


def serve(name: str, make: Callable[[], Service]) -> None:
    """Run a service until SIGTERM or SIGINT, or until its event `ended` is set.

    `READY <name> <host:port>` is printed once it answers; with `--json` that is a JSON line.
    """
    import asyncio
    import signal

    from pyledger.cli.interrupts import run_loop
    from pyledger.net.sockets import raise_descriptor_limit

    raise_descriptor_limit()
    as_json = click.get_current_context().meta.get(_AS_JSON, False)

    async def main() -> bool:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        service = make()
        await service.start()
        # Objects that exist now live until the end: exclude them from all later collections.
        gc.freeze()
        gc.enable()
        try:
            if as_json:
                emit({"kind": "ready", "server": name, "address": service.address})
            else:
                write_line(f"READY {name} {service.address}")
            sys.stdout.flush()
            ends = [asyncio.ensure_future(stop.wait())]
            if isinstance(ended := getattr(service, "ended", None), asyncio.Event):
                ends.append(asyncio.ensure_future(ended.wait()))
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            failed = not stop.is_set()
            for one in ends:
                one.cancel()
        finally:
            await service.close()
        return failed

    if run_loop(main()):
        raise ProblemFoundError(f"the {name} stopped after an error; see the log lines above")


def keep_buffers() -> None:
    """Keep up to 16 MiB of freed memory. For a process that serves: it changes the whole process.

    The buffers of frames and batches, a few hundred KiB each, are allocated and freed hundreds of times a
    second. By default the C library returns the end of the heap whenever little of it is free, and the kernel
    clears the same pages for the next buffer: a sixth of a DLedger member's processor time with batches.
    """
    from pyledger._core import keep_freed_memory

    keep_freed_memory(KEPT_BYTES, MAPPED_BYTES)


def log_to_stderr(level: str) -> None:
    """Write log lines of at least `level` to stderr."""
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter(LOG_FORMAT))
    root = logging.getLogger("pyledger")
    root.setLevel(level.upper())
    root.addHandler(handler)


def log_ignored(keys: Sequence[str], server: str) -> None:
    """Log the settings of a config file that have no effect."""
    from pyledger.log_events import event, logger

    if keys:
        event(logger(server), logging.WARNING, "settings have no effect here", settings=",".join(keys))


class OneLineFormatter(logging.Formatter):
    """Formats each message as one line, whatever text a peer sent; a traceback follows on more lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name of logging
        """Return the line of a record."""
        return printable(super().formatMessage(record))


def listen_option(
    default: str, name: str = "--listen", what: str = "Address to listen on"
) -> Callable[[F], F]:
    """Return the option for a listen address: `--listen`, or `name` for a second server."""
    return click.option(
        name,
        metavar="HOST:PORT",
        callback=parsed_address,
        help=f"{what}; port 0 chooses a free port. [default: {default}]",
    )


config_option = click.option(
    "-c",
    "--config",
    "config_path",
    type=NonEmptyPath(dir_okay=False, path_type=Path),
    help="Settings: a TOML file, or upstream's own properties file.",
)
_AS_JSON = "pyledger.ready_as_json"
_ready_json_option = click.option(
    "--json",
    is_flag=True,
    expose_value=False,
    callback=lambda ctx, _param, value: ctx.meta.update({_AS_JSON: value}),
    help="Print a JSON line instead of READY.",
)
_log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Lowest level that is logged to stderr.",
)


def server_options(command: F) -> F:
    """Add `--log-level` and `--json`, which every server has."""
    return _log_level_option(_ready_json_option(command))


def parsed_address(_ctx: click.Context, _param: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Parse `HOST:PORT`; an IPv6 host may be in brackets."""
    if value is None:
        return None
    from pyledger.model.address import split_address

    try:
        return split_address(value, least_port=0)
    except ValueError:
        raise click.BadParameter(f"{value!r} is not an address; give one such as 127.0.0.1:9876") from None
