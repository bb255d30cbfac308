from typing import Any

import pytest
from msgspec import structs

from replan.planning.grounding import (
    asks_for,
    bound_arguments,
    converts,
    one_of,
    plan_arguments,
    reserved,
)
from replan.planning.words import leaves, numbers, quoted, spans
from replan.tool import ToolInfo

NULL = {"type": "null"}


def info(*, read_only: bool = True, required: tuple[str, ...] = (), **properties: Any) -> ToolInfo:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return ToolInfo(name="t", description="", parameters=schema, read_only=read_only)


TEXT = {"type": "string"}


def planned(goal: str, name: str = "key", *, read_only: bool = True, **schema: Any) -> Any:
    found = plan_arguments(info(read_only=read_only, **{name: schema}), goal)["properties"][name]
    return [choice for choice in found.get("anyOf", [found]) if choice != NULL]


def bound(sources: list[Any], goal: str = "", name: str = "key", **options: Any) -> Any:
    schema = options.pop("schema", TEXT)
    tool = info(read_only=options.pop("read_only", True), required=(name,), **{name: schema})
    return bound_arguments(tool, options.pop("given", {}), sources, goal, **options)["properties"][name]


def test_the_spans_of_a_goal_are_its_names_without_stop_words_at_the_ends():
    found = spans("What has Ann Lee's shop in Lisbon ordered?")
    assert {"Ann Lee", "Lisbon", "Ann Lee shop"} <= set(found)
    assert not {"What", "has", "in", "in Lisbon", "shop in"} & set(found)


def test_a_span_does_not_cut_a_name_and_a_plural_is_there_in_the_singular_too():
    found = spans("Mail Ann Lee the price of 7 Skua kettles and the Lumo 3.")
    assert {"Ann Lee", "Skua kettles", "Skua kettle", "Lumo 3"} <= set(found)
    assert not {"Ann", "Lee", "Lumo"} & set(found)


def test_spans_end_at_the_borders_of_sentences_and_quotes_come_first():
    found = spans("Mail 'Q3 report (draft)' to Bob. Tokyo is next.")
    assert found[0] == "Q3 report (draft)"
    assert not any("Bob" in span and "Tokyo" in span for span in found)
    assert len(spans("word " * 10_000 + " ".join(map(str, range(500))))) <= 80


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []),
        ("3 cities at 2.5 km, minus -4", [3, 2.5, -4]),
        ("v2 1.2.3 x5", []),
        ("at 09:30", [9, 30]),
        ("100%", [100]),
    ],
)
def test_the_numbers_of_a_text_are_those_that_stand_alone(text: str, found: list[float]):
    assert numbers(text) == found


def test_what_an_error_offers_stands_in_quotes():
    text = "no 'Lisbn'; did you mean \"Lisbon\" or “Lissabon”, `lis`?"
    assert quoted(text) == ["Lisbn", "Lisbon", "Lissabon", "lis"]
    assert quoted("nothing") == []


def test_leaves_are_the_texts_and_numbers_in_order():
    value = {"a": ["x", {"b": 2, "c": None}], "d": True, "e": "x", "f": "", "g": 1.5, "h": "y" * 121}
    assert leaves(value) == ["x", 2, 1.5]
    assert len(leaves([f"v{n}" for n in range(1000)])) == 60


def test_a_planned_argument_is_a_part_of_the_goal_or_null():
    [names] = planned("Find Ann Lee in Lisbon", type="string")
    assert {"Ann Lee", "Lisbon"} <= set(names["enum"])
    assert planned("Give me 3 of 2.5", type="integer") == [{"enum": [3]}]
    assert planned("Give me 3 of 2.5", type="number") == [{"enum": [3, 2.5]}]
    assert planned("go", type="boolean") == [{"type": "boolean"}]
    assert planned("go", enum=["a", "b"]) == [{"enum": ["a", "b"]}]
    assert planned("go to 3", type="array") == []
    assert planned("", type="string") == []


def test_what_only_a_model_can_know_stays_free_in_calls_that_read():
    zone = {"type": "string", "description": "a zone such as Europe/Lisbon"}
    assert planned("It is noon in Tokyo", **zone) == [{"type": "string", "maxLength": 60}]
    [known] = planned("What time is it in Asia/Tokyo?", **zone)
    assert "Asia/Tokyo" in known["enum"]
    assert "time" not in known["enum"]
    order = {"type": "string", "description": "an id such as C-1234"}
    assert planned("Where is my order?", **order) == []
    assert planned("Where is order C-77?", **order) == [{"enum": ["C-77"]}]


def test_what_is_written_or_sent_waits_for_the_results():
    assert planned("Mail Bob that 3 are left", read_only=False, type="string") == []
    assert planned("Mail Bob that 3 are left", "body", type="string") == []


def test_arguments_that_a_tool_needs_must_be_in_the_plan_and_no_others_may():
    schema = plan_arguments(info(required=("a",), a=TEXT, b=TEXT), "go to Rome")
    assert (schema["required"], schema["additionalProperties"]) == (["a"], False)
    assert set(schema["properties"]) == {"a", "b"}
    assert plan_arguments(ToolInfo(name="t", description="", parameters={"type": "object"}), "x") == {"const": {}}


def test_a_bound_argument_is_a_leaf_of_a_result_or_a_part_of_the_goal():
    found = bound([{"id": "c7", "n": 4}], "for Ann Lee")
    assert found["enum"][0] == "c7"
    assert "Ann Lee" in found["enum"]
    assert bound([{"id": "c7", "n": 4, "f": 0.5}], "of 9", schema={"type": "integer"}) == {"enum": [4, 9]}
    assert bound([{"n": 4, "f": 0.5}], schema={"type": "number"}) == {"enum": [4, 0.5]}


def test_a_leaf_that_looks_like_the_examples_is_preferred():
    order = {"type": "string", "description": "an id such as C-1234"}
    assert bound([{"name": "Ann Lee", "order": "C-77"}], "order for Ann", schema=order) == {"enum": ["C-77"]}


def test_a_text_to_be_composed_stays_free():
    assert bound([{"a": "x"}], name="body") == TEXT
    assert bound([{"a": "x"}], schema={"enum": ["p", "q"]}) == {"enum": ["p", "q"]}
    assert bound([], "") == TEXT
    assert bound([], "", schema={"type": "array"}) == {"type": "array"}


def test_given_arguments_are_fixed_and_refused_values_left_out():
    tool = info(required=("a", "b"), a=TEXT, b=TEXT, c=TEXT)
    schema = bound_arguments(tool, {"b": 5, "c": "z"}, [["x", "y"]], "", refused=[{"a": "x"}])
    assert schema["properties"] == {"a": {"enum": ["y"]}, "b": {"enum": [5]}, "c": {"enum": ["z"]}}
    assert schema["required"] == ["a", "b", "c"]


@pytest.mark.parametrize("kind", [["integer", "null"], None])
def test_a_type_beside_null_counts(kind: Any):
    schema = {"type": kind} if kind else {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert bound([{"n": 4, "s": "x"}], schema=schema) == {"enum": [4]}


def test_after_a_failure_a_text_is_one_of_what_the_error_offers():
    assert bound([{"city": "Oslo"}], "the price of tea", offered=["Rome"]) == {"enum": ["Rome"]}
    assert bound([7], "", schema={"type": "integer"}, offered=["Rome"]) == {"enum": [7]}


def test_an_address_is_offered_where_an_address_is_wanted():
    mail = {"type": "string", "description": "e-mail address of the recipient"}
    assert bound([{"name": "Bob", "mail": "bob@x.example"}], "Mail Bob", schema=mail) == {"enum": ["bob@x.example"]}
    link = {"type": "string", "format": "uri"}
    assert bound(["a", "https://x.example"], "", schema=link) == {"enum": ["https://x.example"]}
    assert bound(["a"], "", schema=link) == {"enum": ["a"]}


def test_units_that_a_goal_has_are_recognised():
    units = ["cm", "in", "F", "km/h", "lb"]
    assert asks_for("How tall is it in inches?", units, surely=True)
    assert asks_for("How hot in Fahrenheit?", units, surely=True)
    assert asks_for("How many pounds?", units, surely=True)
    assert asks_for("How fast in km/h?", units, surely=True)
    assert not asks_for("What is the temperature in Pellow right now?", units, surely=False)


def test_a_tool_that_takes_a_number_and_lists_units_converts():
    tool = info(required=("value", "unit"), value={"type": "number"}, unit=TEXT)
    listed = structs.replace(tool, description="Turn it. Units: cm, in, and lb.")
    assert converts(listed) == ["cm", "in", "lb"]
    assert converts(tool) == []


def test_what_a_goal_gives_for_a_named_argument_of_a_write_is_not_looked_up():
    note = structs.replace(info(required=("title",), title=TEXT), read_only=False)
    goal = "Make a note with the title Weekly Shop that says how many Lumo 3 are left"
    assert reserved([note], goal) == ["Weekly Shop"]
    offered = plan_arguments(info(required=("name",), name=TEXT), goal, reserved=["Weekly Shop"])
    names = offered["properties"]["name"]["anyOf"][0]["enum"]
    assert "Lumo 3" in names
    assert not any("Shop" in name for name in names)


def test_several_of_something_may_be_one_of_it():
    assert {"Plum loaves", "Plum loaf"} <= set(spans("bake 3 Plum loaves"))
    assert {"Tin boxes", "Tin box"} <= set(spans("pack 3 Tin boxes"))
    assert "The Tin Orchard" in spans("pages of The Tin Orchard?")


def test_arguments_in_the_plural_may_be_meant_in_the_singular():
    assert one_of({"dish": "Plum loaves", "n": 2}) == {"dish": "Plum loaf", "n": 2}
    assert one_of({"dish": "Plum loaf"}) is None
    assert not any("%" in span for span in spans("plan 10% more flour"))
