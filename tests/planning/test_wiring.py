"""Short plans of constrained models, wired in full."""

import json

from replan.encoding import JSONObject
from replan.planning.wiring import wire, wired
from replan.tool import ToolInfo


def tool(name: str, *parameters: str, writes: bool = False, kind: str = "string") -> ToolInfo:
    properties: JSONObject = {parameter: {"type": kind} for parameter in parameters}
    schema: JSONObject = {"type": "object", "properties": properties, "required": list(parameters)}
    if parameters == ("id",):
        properties["id"]["description"] = "such as C-1234"
    return ToolInfo(name=name, description=f"Find one {name}. More.", parameters=schema, read_only=not writes)


def look(name: str, description: str = "", /, **arguments: str | None) -> JSONObject:
    return {"description": description or f"Find {name}", "call": {"tool": name, "arguments": arguments}}


PART, OWNER, RATE, MAIL = (
    tool("part", "name"),
    tool("owner", "id"),
    tool("rate", "a", "b"),
    tool("mail", "to", writes=True),
)
SCALE = tool("scale", "amount", kind="number")
TOOLS = [PART, OWNER, RATE, MAIL, SCALE]


def steps(goal: str, *planned: JSONObject, **more: object) -> list[JSONObject]:
    return wire({"steps": list(planned), **more}, TOOLS, goal)["steps"]


def arguments(found: list[JSONObject]) -> list[JSONObject]:
    return [step["call"]["arguments"] for step in found if "call" in step]


def test_what_is_known_waits_for_nothing_and_the_rest_for_all_before_it():
    found = steps("part A1 and its owner", look("part", name="A1"), look("owner", id=None), look("mail", to=None))
    assert [step["id"] for step in found] == ["s1", "s2", "s3"]
    assert [step["depends_on"] for step in found] == [[], ["s1"], ["s1", "s2"]]


def test_what_is_named_in_one_breath_is_looked_up_too():
    found = steps("Is the Red lamp, the Blue stool or the Green vase heavier?", look("part", name="Red lamp"))
    assert arguments(found) == [{"name": "Red lamp"}, {"name": "Blue stool"}, {"name": "Green vase"}]
    assert found[-1]["compute"] == {"value": None}
    assert found[-1]["depends_on"] == ["s1", "s2", "s3"]


def test_names_end_where_other_words_begin():
    found = steps("the weight of the Lumo 3 and the Skua kettle together", look("part", name="Lumo 3"))
    assert arguments(found) == [{"name": "Lumo 3"}, {"name": "Skua kettle"}]
    assert arguments(steps("in Rome or in Oslo is it wet?", look("part", name="Rome"))) == [
        {"name": "Rome"},
        {"name": "Oslo"},
    ]


def test_what_another_step_is_about_is_not_looked_up_twice():
    found = steps("Red lamp and Blue stool", look("part", name="Red lamp"), look("part", name="Blue stool"))
    assert arguments(found) == [{"name": "Red lamp"}, {"name": "Blue stool"}]


def test_a_call_has_the_name_that_its_description_has():
    found = steps("Note under the title Restock the stock of Lumo 3", look("part", "Stock of Lumo 3", name="Restock"))
    assert arguments(found) == [{"name": "Lumo 3"}]


def test_a_tool_that_the_plan_says_it_uses_is_called():
    found = steps("who owns A1?", look("part", name="A1"), uses={"part": True, "owner": True, "scale": True})
    assert arguments(found) == [{"name": "A1"}, {"id": None}]
    assert found[1]["description"] == "Find one owner"


def test_several_things_looked_up_are_computed_with_one_is_not():
    assert not any("compute" in step for step in steps("A1?", look("part", name="A1")))
    assert (
        sum("compute" in step for step in steps("A1 in EUR?", look("part", name="A1"), look("rate", a="EUR", b="NOK")))
        == 1
    )


def test_one_computation_is_kept_before_the_writes():
    work: JSONObject = {"description": "Sum", "compute": {"value": None}}
    found = steps("mail the sum", look("mail", to=None), work, look("part", name="A1"), {**work, "description": "More"})
    assert [step["description"] for step in found] == ["Find part", "Sum", "Find mail"]


def test_a_reader_gets_the_wired_plan_and_other_replies_as_they_are():
    read = wired(lambda args, text: {"text": text}, TOOLS)
    reply = json.dumps({"steps": [look("part", name="A1")]})
    assert json.loads(read({"goal": "A1", "taken": ["s1"]}, reply)["text"])["steps"][0]["id"] == "s2"
    assert read({"goal": "A1"}, "no plan") == {"text": "no plan"}
