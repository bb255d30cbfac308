from typing import Any

import pytest

from replan.planning.catalogue import catalogue, result_fields
from replan.tool import ToolInfo


def info(**more: Any) -> ToolInfo:
    return ToolInfo(name="find", description="Find.", parameters={"type": "object"}, read_only=True, **more)


def test_a_line_says_what_a_result_has_where_that_is_known():
    assert catalogue([info()]) == "- find(): Find."
    assert catalogue([info()], {"find": ["id", "name"], "other": ["x"]}) == "- find(): Find. -> {id, name}"


@pytest.mark.parametrize(
    ("schema", "samples", "fields"),
    [
        ({"properties": {"id": {}, "name": {}}}, [], ["id", "name"]),
        ({"properties": {"result": {"properties": {"id": {}}}}}, [], ["id"]),
        ({"properties": {"result": {"items": {"properties": {"id": {}}}}}}, [], ["id"]),
        ({"properties": {"result": {"type": "string"}}}, [{"seen": 1}], []),
        (None, [{"id": 1}], ["id"]),
        (None, [{"result": [{"id": 1}]}], ["id"]),
        (None, ["text", '[{"a": 1, "b": 2}]'], ["a", "b"]),
        (None, ["text", 5, []], []),
    ],
)
def test_the_fields_of_a_result_are_published_or_were_seen(schema: Any, samples: list[Any], fields: list[str]):
    assert result_fields(info(output_schema=schema), samples) == fields
