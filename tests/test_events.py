import re
from typing import Any, get_args

import msgspec
import pytest

from replan import events
from replan.encoding import decode, encode
from replan.events import AnyEvent, Event, RunComplete, StepToolCall, UsageReported, from_json, to_json
from replan.usage import Usage

EVERY = get_args(AnyEvent)


def sample(kind: type[Event]) -> Event:
    values: dict[str, Any] = {}
    for field in msgspec.inspect.type_info(kind).fields:  # type: ignore[union-attr]
        values[field.name] = _sample_of(field.type)
    return kind(**values)


def _sample_of(info: Any) -> Any:
    match info:
        case msgspec.inspect.LiteralType():
            return info.values[0]
        case msgspec.inspect.StrType():
            return "text"
        case msgspec.inspect.IntType():
            return 2
        case msgspec.inspect.FloatType():
            return 1.5
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.DictType():
            return {"a": [1]}
        case msgspec.inspect.ListType():
            return [{"a": 1}]
        case msgspec.inspect.StructType():
            return Usage(1, 2)
        case msgspec.inspect.UnionType():
            return _sample_of(info.types[0])
        case _:
            return {"any": 1}


def test_every_event_is_in_the_union_and_public():
    assert set(EVERY) == set(Event.__subclasses__())
    assert {kind.__name__ for kind in EVERY} < set(events.__all__)
    assert events.__all__ == sorted(events.__all__)


@pytest.mark.parametrize("kind", EVERY)
def test_an_event_survives_the_wire(kind: type[Event]):
    event = sample(kind)
    data = to_json(event)
    assert re.fullmatch(r"[a-z]+([.-][a-z]+)*", data["type"])
    assert from_json(decode(encode(data))) == event
    assert from_json(data) == event
    assert data["run_id"] == "text"


def test_types_are_the_class_names_in_dots_and_dashes():
    assert to_json(sample(StepToolCall))["type"] == "step.tool-call"
    assert to_json(sample(UsageReported))["type"] == "usage"
    types = [kind.__struct_config__.tag for kind in EVERY]
    assert len(set(types)) == len(types)


def test_live_events_are_those_that_a_resume_does_not_repeat():
    live = {kind.__name__ for kind in EVERY if kind.live}
    assert {"StepTextDelta", "FinalTextDelta", "StepToolProgress", "Retry"} <= live
    assert not live & {"RunStart", "RunComplete", "StepToolResult", "PlanCreated", "Final", "UsageReported"}
    assert {kind.__name__ for kind in EVERY if "*Live.*" in (kind.__doc__ or "")} == live


@pytest.mark.parametrize("data", [None, {}, {"type": "nothing", "run_id": "r"}, {"type": "final", "run_id": "r"}])
def test_what_is_no_event_is_a_value_error(data: Any):
    with pytest.raises(ValueError):
        from_json(data)


def test_events_are_frozen():
    event = RunComplete(run_id="r", status="complete", usage=Usage(), seconds=1.0)
    with pytest.raises(AttributeError):
        event.status = "failed"  # type: ignore[misc]
