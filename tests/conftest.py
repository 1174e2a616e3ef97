"""Fixtures that several folders of tests share, and what a run says about the native module it met."""

import pytest

from pyledger import _core

pytest_plugins = ("tests.golden.fixtures", "tests.interop.fixtures")


def pytest_report_header(config: pytest.Config) -> str:
    """Name the build and the digest kernels: a failure may hang on either."""
    return f"pyledger._core: {_core.build_kind()} build, digests by {_core.digest_backend()}"
