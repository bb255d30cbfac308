import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.encoding import normalise
from replan.events import Log, PlanStepAdded, PlanThoughtDelta
from replan.messages import Assistant, Image, Text, ToolCall, ToolResult, User, to_json, user
from replan.model import ModelProfile, Retry, TextDelta
from replan.output import OutputProblem
from replan.planning import Plan
from replan.planning.plan import to_json as to_json_plan
from replan.planning.planner import (
    catalogue,
    history_section,
    plan_reader,
    plan_schema,
    planner_stage,
    read_plan,
    watch_plan,
)
from replan.settings import ModelSettings
from replan.testing import ScriptedModel
from replan.tool import ToolInfo

LOOK = ToolInfo(
    name="look",
    description="Look up\n  a key.",
    parameters={
        "type": "object",
        "properties": {
            "key": {"type": "string", "description": "what to\nlook up"},
            "kind": {"enum": ["a", "b"]},
            "n": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "any": {},
        },
        "required": ["key"],
    },
    read_only=True,
)
SEND = ToolInfo(name="send", description="x" * 1000, parameters={"type": "object"}, server="mail", original="mail.send")
ARGS = {"goal": "Find Ann.", "max_steps": 3}


def words_of(schema: Any) -> set[str]:
    """All keywords of a schema."""
    if isinstance(schema, dict):
        return set(schema) | {word for value in schema.values() for word in words_of(value)}
    return {word for item in schema for word in words_of(item)} if isinstance(schema, list) else set()


def test_the_catalogue_has_one_line_a_tool():
    first, second = catalogue([LOOK, SEND]).split("\n")
    assert first == "- look(key: string (what to look up), kind?: a|b, n?: integer, any?: any): Look up a key."
    assert second.startswith("- send() [writes]: xxx")
    assert len(second) < 450


def test_the_planners_schema_uses_nothing_that_a_provider_refuses():
    schema = plan_schema(ModelProfile(), [LOOK, SEND], ARGS).schema
    assert not {"maxItems", "minItems", "maxLength", "minLength", "pattern"} & words_of(schema)
    assert schema["required"] == list(schema["properties"])
    assert {"thought", "steps"} <= set(schema["properties"])


def test_a_constrained_planner_is_offered_real_tools_and_no_more_steps_than_allowed():
    schema = plan_schema(ModelProfile(constrained=True), [LOOK, SEND], {**ARGS, "goal": "Send Ann the key"}).schema
    text = json.dumps(schema)
    assert '"const": "look"' in text
    assert '"const": "send"' in text
    assert '"maxItems": 3' in text
    assert '"Ann"' in text
    assert "Ann" not in json.dumps(plan_schema(ModelProfile(constrained=True), [], ARGS).schema)


def test_a_constrained_planner_is_not_offered_to_write_what_the_goal_does_not_ask_for():
    schema = plan_schema(ModelProfile(constrained=True), [LOOK, SEND], {**ARGS, "goal": "A poem for Ann"}).schema
    assert '"const": "look"' in json.dumps(schema)
    assert "send" not in json.dumps(schema)


def reader(args: Any, text: str) -> Any:
    return plan_reader([LOOK], args, text)


def test_the_instructions_tell_of_tools_servers_and_the_users_own_prompt():
    stage = planner_stage(
        ScriptedModel(), [LOOK], reader, "Be brief.", ModelSettings(), ["Server 'x' is not available: gone"]
    )
    assert "Tools:\n- look(" in stage.instructions
    assert "Server 'x' is not available: gone" in stage.instructions
    assert stage.instructions.endswith("Be brief.")
    assert stage.read is reader
    bare = planner_stage(ScriptedModel(), [], reader, "", ModelSettings())
    assert "There are no tools." in bare.instructions


def test_a_plan_is_read_with_what_the_loop_must_know_of_its_tools():
    step = {"description": "a", "call": {"tool": "mail.send", "arguments": {}}, "suggested_tools": ["nothing"]}
    read = plan_reader([LOOK, SEND], ARGS, f"Here: {json.dumps({'steps': [step]})}")
    assert [s["call"]["tool"] for s in read["plan"]["steps"]] == ["send"]
    text = "step 's1' suggested unknown tools, which were dropped: 'nothing'"
    assert read["findings"] == [{"step": "s1", "kind": "unknown-tool", "text": text, "mended": True}]
    assert (read["problems"], read["writes"], read["price"], read["origins"]) == ([], True, {}, {})
    facts = read["tools"]["send"]
    assert (facts["once"], facts["original"], facts["server"], facts["required"]) == (True, "mail.send", "mail", [])
    assert (facts["writes"], facts["output"]) == (True, None)
    assert "send() [writes]: " in facts["line"]
    assert set(read["tools"]) == {"send"}
    plain = plan_reader([LOOK], ARGS, json.dumps({"steps": [{"call": {"tool": "look"}}]}))
    facts = plain["tools"]["look"]
    assert (facts["once"], facts["writes"], facts["required"]) == (False, False, ["key"])
    assert plain["writes"] is False


def test_the_tools_that_steps_suggest_and_check_with_are_told_too():
    check = {"call": {"tool": "look", "arguments": {"key": "x"}}}
    steps = [{"description": "a", "suggested_tools": ["mail.send"]}, {"description": "b", "check": check}]
    assert set(read_plan([LOOK, SEND], ARGS, {"steps": steps})["tools"]) == {"look", "send"}


def test_the_shapes_of_results_come_from_what_is_remembered():
    @dataclass
    class Seen:
        samples: list[Any]

    steps = [
        {"id": "a", "call": {"tool": "look", "arguments": {"key": "x"}}},
        {"id": "b", "call": {"tool": "look", "arguments": {"key": "${a.nope}"}}},
    ]
    read = read_plan([LOOK], ARGS, {"steps": steps}, history={"look": Seen([{"id": 5}])})
    assert read["tools"]["look"]["output"]["properties"] == {"id": {"type": "integer"}}
    assert [(f["step"], f["kind"], f["mended"]) for f in read["findings"]] == [("b", "unseen", False)]
    assert read["problems"] == []


def test_a_plan_comes_with_its_price_problems_and_origins():
    steps = [
        {"id": "a", "call": {"tool": "look", "arguments": {"key": "ann", "n": "five"}}},
        {"id": "b", "call": {"tool": "send", "arguments": {"to": "bob@x.org", "body": "Hi"}}},
        "odd",
    ]
    priced: list[Any] = []

    def price(plan: Plan, facts: Any, args: Any) -> Any:
        priced.append((plan, facts, args))
        return {"tool_calls": [1, 2]}

    read = plan_reader([LOOK, SEND], ARGS, json.dumps({"steps": steps}), pricer=price)
    assert read["price"] == {"tool_calls": [1, 2]}
    [(plan, facts, args)] = priced
    assert to_json_plan(plan) == read["plan"]
    assert (facts, args) == (read["tools"], ARGS)
    assert len(read["problems"]) == 1
    assert read["problems"][0].startswith("Step 'a', look: 'n'")
    assert read["origins"] == {"b": {"to": "model", "body": "model"}}
    said = [(f["step"], f["kind"], f["mended"]) for f in read["findings"]]
    assert said == [(None, "reading", True), ("a", "arguments", True), ("b", "ungrounded", False)]
    assert read["findings"][-1]["text"] == "step 'b': to = \"bob@x.org\" is neither in the goal nor in a result"


def test_what_else_is_known_of_the_run_counts():
    failed = {"call": {"tool": "look", "arguments": {"key": "x"}}, "ok": False, "shape": None}
    step = {"id": "s1", "call": {"tool": "look", "arguments": {"key": "x"}}}
    more = {"taken": ["s1"], "known": {"s1": failed}, "revision": 2, "kinds": ["open"]}
    read = read_plan([LOOK], {**ARGS, **more}, {"steps": [step, {**step, "id": "t", "description": "Again"}]})
    assert (read["plan"]["steps"], read["plan"]["revision"]) == ([], 2)
    read = read_plan([LOOK], {**ARGS, "kinds": ["open"]}, {"steps": [step]})
    assert "call" not in read["plan"]["steps"][0]


def test_a_plan_that_is_much_too_long_is_read_in_part():
    steps = [{"description": "x"}] * 5000
    read = read_plan([LOOK], ARGS, {"steps": steps})
    assert len(read["plan"]["steps"]) == ARGS["max_steps"]
    with pytest.raises(ValueError, match='an object with "steps"'):
        read_plan([LOOK], ARGS, {"step": []})


def test_of_two_objects_the_plan_is_taken_wherever_it_stands():
    plan = json.dumps({"thought": "t", "steps": [{"description": "a"}]})
    for text in (f'{{"note": 1}} {plan}', f'{plan} {{"note": 1}}', f"```json\n{plan}\n``` or {{}}"):
        assert [s["description"] for s in plan_reader([], ARGS, text)["plan"]["steps"]] == ["a"]


def test_a_plan_keeps_the_fences_and_line_breaks_inside_its_texts():
    text = 'Sure!\n```json\n{"thought": "t", "steps": [{"description": "Run:\n```sh\nls\n```\nand stop"}]}\n```\nDone.'
    [step] = plan_reader([], ARGS, text)["plan"]["steps"]
    assert step["description"] == "Run:\n```sh\nls\n```\nand stop"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("I will look it up.", "it holds no JSON"),
        ('{"thought": "t"}', 'a plan is an object with "steps", a list'),
        ('{"steps": ["look"]}', 'each of the "steps" is an object'),
        ('{"thought": "t", "steps": [{"desc', "it holds no JSON"),
    ],
)
def test_a_reply_that_is_no_plan_is_a_problem_that_the_model_can_read(text: str, words: str):
    with pytest.raises(OutputProblem) as caught:
        plan_reader([], ARGS, text)
    assert str(caught.value).startswith(f"Your reply is not a plan: {words}")
    assert str(caught.value).endswith(". Reply again with only the corrected JSON.")


def test_the_history_is_its_last_turns_each_clipped():
    history = [user(f"q{n} " + "x" * 3000) if n % 2 else Assistant((Text(f"a{n}"),)) for n in range(20)]
    call = Assistant((ToolCall("c", "look", {}),))
    messages = [*history, call, ToolResult("c", "look", (Text("secret result"),)), User((Image("image/png", b"x"),))]
    before = [to_json(m) for m in messages]
    section = history_section(before)
    lines = section.strip().split("\n")
    assert lines[0] == "Conversation so far:"
    assert [line[:8] for line in lines[1:]] == ["Assistan", "User: q1"] * 4
    assert all(len(line) <= len("User: ") + 1500 for line in lines if line.startswith("User"))
    assert "q13" in section
    assert "q11" not in section
    assert "secret" not in section
    assert section.endswith("\n\n")
    assert before == [to_json(m) for m in messages]
    assert history_section([]) == ""


# ---- while it is written


def watched(*pieces: str | Retry) -> list[Any]:
    watch = watch_plan("r1", None)
    return [event for piece in pieces for event in watch(TextDelta(piece) if isinstance(piece, str) else piece)]


PLAN = {
    "thought": "First look, then send.",
    "steps": [
        {"id": "find", "description": "Look it up", "call": {"tool": "look", "arguments": {"key": "{a}"}}},
        {"description": 'Send "it"'},
        {"description": "Third"},
    ],
}
ADDED = [(0, "find", "Look it up"), (1, "s2", 'Send "it"'), (2, "s3", "Third")]


def thoughts(events: list[Any]) -> str:
    return "".join(event.delta for event in events if isinstance(event, PlanThoughtDelta))


def added(events: list[Any]) -> list[tuple[int, str, str]]:
    return [(event.index, event.id, event.description) for event in events if isinstance(event, PlanStepAdded)]


@given(st.lists(st.integers(0, 300), max_size=12), st.sampled_from(["", "```json\n", "Here it is: "]))
def test_the_thought_and_the_steps_are_told_whatever_the_pieces(cuts: list[int], before: str):
    text = before + json.dumps(PLAN)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    events = watched(*(text[a:b] for a, b in pairwise(borders)))
    assert thoughts(events) == PLAN["thought"]
    assert added(events) == ADDED
    assert not [event for event in events if isinstance(event, Log)]


def test_a_step_is_told_as_soon_as_its_description_is_there():
    start = '{"thought": "t", "steps": [{"id": "a", "description": "Look'
    assert added(watched(start)) == []
    assert added(watched(start, ' it up"')) == [(0, "a", "Look it up")]


def test_the_thought_comes_piece_by_piece_and_before_the_steps():
    text = json.dumps(PLAN)
    events = watched(*text)
    assert thoughts(events) == PLAN["thought"]
    assert len([event for event in events if isinstance(event, PlanThoughtDelta)]) > 10
    kinds = [type(event) for event in events]
    assert kinds.index(PlanStepAdded) > max(n for n, kind in enumerate(kinds) if kind is PlanThoughtDelta)


def test_a_thought_that_is_rewritten_is_warned_about_once_and_told_no_further():
    events = watched('{"thought": "First th', 'is", "thought": "Second", "thought": "Third and', ' more", "steps": [')
    assert [type(event) for event in events] == [PlanThoughtDelta, Log]
    warning = events[-1]
    assert warning.level == "warning"
    assert "rewrote its thought" in warning.message


def test_a_repeated_call_begins_anew():
    text = json.dumps(PLAN)
    events = watched(text[:60], Retry(1, "broke", 0.1), text)
    assert added(events)[-3:] == ADDED
    assert thoughts(events).endswith(str(PLAN["thought"]))
    assert not [event for event in events if isinstance(event, Log)]


anything = st.recursive(
    st.none() | st.text(max_size=5) | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(thought=anything, steps=anything, cut=st.integers(0, 200))
def test_no_reply_breaks_the_watch(thought: Any, steps: Any, cut: int):
    text = json.dumps(normalise({"thought": thought, "steps": steps}))
    for event in watched(text[:cut], text[cut:], "}}}", "\ud800"):
        assert event.run_id == "r1"
