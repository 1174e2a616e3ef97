"""The version of the installed package; it comes from the tag that was built, so no file of ours has it."""

from importlib.metadata import version

__version__ = version("pyledger")
