"""Entry point of the process. It imports little, so that streams and Ctrl-C are set up first."""

import os
import sys

from pyledger.cli import EXIT_INTERRUPTED


def main() -> None:
    """Run the command line and end the process."""
    try:
        open_closed_streams()
        from pyledger.cli.interrupts import interruptible

        with interruptible():
            from pyledger.cli.process import run
            from pyledger.cli.streams import prepare_output

            prepare_output()
            code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before or after `run`, which handles its own
        code = EXIT_INTERRUPTED
    sys.exit(code)


def open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise the next files and sockets would get descriptors 0 to 2: messages for the user would be written
    to a file of a store, and libuv would abort the process.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free descriptor is this one: those below it are open.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


if __name__ == "__main__":
    main()
