from typing import Any

import pytest

from replan.planning import Plan, PlannedCall, Step
from replan.planning.origins import origins, ungrounded
from replan.tool import ToolInfo

PARAMETERS = {
    "type": "object",
    "properties": {
        "to": {"type": "string"},
        "body": {"type": "string"},
        "zone": {"type": "string", "description": "An IANA zone, such as Asia/Tokyo or Europe/Oslo."},
        "unit": {"anyOf": [{"enum": ["C", "F"]}, {"type": "null"}]},
        "limit": {"type": "integer", "default": 50},
        "sort": {"type": "string", "examples": ["by-date"]},
        "on": {"type": "boolean"},
        "rows": {
            "type": "array",
            "items": {"type": "object", "properties": {"id": {"enum": ["A-1"]}, "text": {"type": "string"}}},
        },
    },
}
WRITE = ToolInfo(name="write", description="Write.", parameters=PARAMETERS)
READ = ToolInfo(
    name="read", description="Read.\n\nArgs:\n    to: a person, e.g. Bob", parameters=PARAMETERS, read_only=True
)
GOAL = 'Mail Ann Lee the 3 cheapest lamps at 09:30, cc "eve@x.org", from crates; 2.5 kg'


def plan(tool: str = "write", **arguments: Any) -> Plan:
    return Plan(steps=(Step(id="s1", description="s", call=PlannedCall(tool, arguments)),))


def found(tool: str = "write", **arguments: Any) -> dict[str, str]:
    return dict(origins(plan(tool, **arguments), [WRITE, READ], GOAL)["s1"])


@pytest.mark.parametrize(
    "value",
    ["Ann Lee", "ann  lee", "lamp", "Lamps", "crate", "09:30", "eve@x.org", "3", 3, 3.0, 2.5, "cheapest lamps at"],
)
def test_a_value_of_the_goal_is_known_whatever_its_case_and_number(value: Any):
    assert found(to=value) == {"to": "goal"}


@pytest.mark.parametrize("value", ["An", "lee a", "amp", "Bob", 4, "", "s", "x", "x.org"])
def test_a_part_of_a_word_or_number_is_not_of_the_goal(value: Any):
    assert found(to=value) == {"to": "model"}


def test_a_reference_is_an_output_alone_or_inside_a_text():
    assert found(to="${a.mail}", body="Dear ${a.name}!") == {"to": "output", "body": "output"}
    assert found(to="$${a.mail}") == {"to": "model"}


def test_what_the_schema_offers_is_of_the_schema():
    given = {"zone": "asia/tokyo", "unit": "C", "limit": 50, "sort": "by-date", "on": True}
    assert found(**given) == dict.fromkeys(given, "schema")
    other = {"zone": "Tokyo/Asia", "unit": "K", "limit": 51, "sort": "by"}
    assert found(**other) == dict.fromkeys(other, "model")
    assert found("read", to="Bob") == {"to": "schema"}


def test_values_inside_values_have_their_paths():
    rows = [{"id": "A-1", "text": "x"}, {"id": "A-2", "text": "${a}", "none": None}]
    assert found(rows=rows, to=None) == {
        "rows[0].id": "schema",
        "rows[0].text": "model",
        "rows[1].id": "model",
        "rows[1].text": "output",
    }


def test_what_an_error_named_is_known():
    told = origins(plan(to="Bo Ek"), [WRITE], GOAL, errors=["no person 'bob'; there is 'Bo Ek'"])
    assert told == {"s1": {"to": "error"}}


def test_only_calls_of_known_tools_have_origins():
    steps = [Step(id="a", description="a"), Step(id="b", description="b", call=PlannedCall("other", {"x": 1}))]
    assert origins(Plan(steps=tuple(steps)), [WRITE], GOAL) == {}


def test_what_only_the_model_knows_is_said_of_writes_but_not_of_free_text():
    made = plan(to="bob@x.org", body="Hello", zone="Asia/Tokyo", rows=[{"id": "A-2", "text": "free"}], limit=7)
    said = ungrounded(made, [WRITE, READ], origins(made, [WRITE, READ], GOAL))
    assert [(f.step, f.kind, f.mended) for f in said] == [("s1", "ungrounded", False)] * 3
    assert [f.text for f in said] == [
        "step 's1': to = \"bob@x.org\" is neither in the goal nor in a result",
        "step 's1': rows[0].id = \"A-2\" is neither in the goal nor in a result",
        "step 's1': limit = 7 is neither in the goal nor in a result",
    ]
    reading = plan("read", zone="Mars/Base")
    assert ungrounded(reading, [WRITE, READ], origins(reading, [WRITE, READ], GOAL)) == []


def test_a_long_value_is_shown_in_part():
    made = plan(to="x" * 5000)
    [said] = ungrounded(made, [WRITE], origins(made, [WRITE], GOAL))
    assert len(said.text) < 200
