"""`python -m pyledger` is the command line."""

from pyledger.cli.__main__ import main

if __name__ == "__main__":
    main()
