"""Log lines are events: a fixed lower-case message plus fields. Handlers are the application's.

The logger of a package is `pyledger.<package>`. A record carries the message as `record.event` and the fields
as `record.fields`, for handlers that write them separately; its text has both. State changes are INFO,
unexpected conditions WARNING; no event is logged per stored message.
"""

import logging

ROOT = "pyledger"


def logger(package: str) -> logging.Logger:
    """Return the logger of one package, such as `store`."""
    return logging.getLogger(f"{ROOT}.{package}")


def event(
    target: logging.Logger,
    level: int,
    message: str,
    error: BaseException | None = None,
    /,
    **fields: object,
) -> None:
    """Log one event, such as `event(log, logging.INFO, "store recovered", max_offset=4096)`.

    Args:
        target: Logger of the package that the event happened in.
        level: Level of `logging`.
        message: Fixed text, lower case, without values.
        error: Logged with its traceback.
        fields: The values, in the order in which they are written.

    Cost: nothing is formatted unless the level is enabled.
    """
    if target.isEnabledFor(level):
        text = "".join(f" {name}={value}" for name, value in fields.items())
        if not text.isascii():
            # Text from a peer or a user may have lone surrogates, which cannot be written to a file.
            text = text.encode("utf-8", "backslashreplace").decode("utf-8")
        extra = {"event": message, "fields": fields}
        target.log(level, "%s%s", message, text, exc_info=error, extra=extra, stacklevel=2)
