import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from replan.tool import ToolContext


@pytest.fixture
def make_context(tmp_path: Path) -> Callable[..., ToolContext[Any]]:
    def make(deps: Any = None, **changes: Any) -> ToolContext[Any]:
        return ToolContext(
            run_id="r1",
            call_id="c1",
            tool_name="t",
            idempotency_key="r1/c1",
            deps=deps,
            logger=logging.getLogger("test"),
            sandbox_path=lambda: tmp_path,
            keep=lambda data, mime: tmp_path / "kept",
            **changes,
        )

    return make


@pytest.fixture
def context(make_context: Callable[..., ToolContext[Any]]) -> ToolContext[Any]:
    return make_context()
