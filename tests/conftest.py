"""Shared by all tests: no request leaves this machine."""

from collections.abc import Iterator

import pytest

from replan.testing import block_real_requests


@pytest.fixture(autouse=True, scope="session")
def no_real_requests() -> Iterator[None]:
    with block_real_requests():
        yield
