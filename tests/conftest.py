"""Fixtures that several folders of tests share, and what a run says about the native module it met."""

import pytest
from hypothesis import settings

from pyledger import _core

pytest_plugins = ("tests.golden.fixtures", "tests.interop.fixtures")

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


@pytest.fixture
def rewrite(pytestconfig: pytest.Config) -> bool:
    """Whether text tests accept what the code says."""
    return bool(pytestconfig.getoption("--rewrite"))
