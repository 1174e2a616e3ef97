"""Fixtures that several folders of tests share, and what a run says about the native module it met."""

import signal

import pytest
from hypothesis import settings

from pyledger import _core

pytest_plugins = ("tests.golden.fixtures", "tests.interop.fixtures")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl+C, and so would the commands that tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes says more about the machine than about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` for the text tests, `--fuzz-seconds` for the search in damaged folders."""
    parser.addoption("--rewrite", action="store_true", help="accept new output of the text tests")
    parser.addoption(
        "--fuzz-seconds", type=float, default=0, help="damage folders for so long, with new seeds"
    )


def pytest_report_header(config: pytest.Config) -> str:
    """Name the build and the digest kernels: a failure may hang on either."""
    return f"pyledger._core: {_core.build_kind()} build, digests by {_core.digest_backend()}"


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """In runs of several processes what takes long comes first; a file, Spark, and what shares live servers
    stay in one process."""
    if not hasattr(config, "workerinput"):
        return
    items.sort(key=lambda item: (not is_marked(item, "slow"), not is_marked(item, "spark")))
    for item in items:
        if not is_marked(item, "xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group_of(item)))


def group_of(item: pytest.Item) -> str:
    """What one process has to run."""
    if "peers" in getattr(item, "fixturenames", ()):
        values = item.callspec.params if hasattr(item, "callspec") else {}
        return f"rocketmq {values.get('rocketmq', '')}"
    if is_marked(item, "spark"):
        return "spark"
    return item.nodeid if is_marked(item, "slow") else str(item.path)


def is_marked(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None


@pytest.fixture
def rewrite(pytestconfig: pytest.Config) -> bool:
    """Whether text tests accept what the code says."""
    return bool(pytestconfig.getoption("--rewrite"))
