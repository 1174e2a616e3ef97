"""The `pyledger` command: one file per command, imported only when it runs."""

EXIT_INTERRUPTED = 130
