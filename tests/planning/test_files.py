import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replan.errors import ConfigError
from replan.planning.files import dump_plan, load_plan, unknown_fields
from replan.planning.plan import Plan, PlannedCall, Step, to_json
from replan.planning.schedule import dependencies

DOCUMENT = (Path(__file__).parents[2] / "docs" / "plans.md").read_text(encoding="utf-8")

_TRAPS = ["no", "on", "Yes", "true", "null", "~", "", "09:30", "1e3", "007", "0x1F", "1_000", "2024-01-31", "=", "<<"]
_TRAPS += [
    "-",
    "- a",
    "a: b",
    "# c",
    "a #b",
    "&a",
    "*a",
    "!x",
    "%",
    "@",
    "`",
    "'",
    '"',
    "{",
    "[",
    "|",
    ">",
    "---",
    "...",
]
_TRAPS += [
    "${a.result}",
    "$${",
    " lead",
    "trail ",
    "\n",
    "a\n",
    "a\n\n",
    "\na",
    "a\n b\n  c",
    "a\r\nb",
    "\t",
    "\x00\x1b",
    "\x85",
]
_TRAPS += [
    "\u2028",
    "\ufeff",
    "שלום",
    "\u202eabc",
    "🙂",
    "-0",
    "1.",
    ".5",
    "1e5",
    "+1",
    ".inf",
    "190:20:30",
    "?",
    "? a",
    "a:",
]

texts = st.one_of(
    st.sampled_from(_TRAPS), st.text(max_size=40), st.lists(st.sampled_from(_TRAPS), max_size=4).map("".join)
)
floats = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**63), 2**64 - 1)
values: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), whole, floats, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
objects = st.dictionaries(texts, values, max_size=3)
names = st.from_regex(r"[a-z][a-z0-9_]{0,31}", fullmatch=True)
steps = st.builds(
    Step,
    id=names,
    description=texts,
    expected_outcome=texts,
    suggested_tools=st.lists(texts, max_size=2).map(tuple),
    requires_tools=st.booleans(),
    depends_on=st.none() | st.lists(names, max_size=2).map(tuple),
    produces=st.dictionaries(texts, objects, max_size=2),
    call=st.none() | st.builds(PlannedCall, tool=texts, arguments=st.none() | objects),
    compute=st.none() | objects,
    from_=st.dictionaries(texts, texts, max_size=2),
    check=values,
)
plans = st.builds(
    Plan,
    thought=texts,
    steps=st.lists(steps, max_size=3).map(tuple),
    skills=st.lists(texts, max_size=2).map(tuple),
    revision=st.integers(0, 5),
)


def as_plan(data: Any) -> Plan:
    import msgspec

    return msgspec.convert({name: value for name, value in data.items() if name != "goal"}, Plan)


@settings(max_examples=150, deadline=None)
@given(plans, texts | st.none())
def test_a_plan_comes_back_from_yaml_as_it_was(plan: Plan, goal: str | None) -> None:
    data = load_plan(dump_plan(plan, goal=goal))
    assert to_json(as_plan(data)) == to_json(plan)
    assert repr(to_json(as_plan(data))) == repr(to_json(plan))  # 1 is not 1.0 nor true
    assert data.get("goal") == goal


@settings(max_examples=50, deadline=None)
@given(plans)
def test_a_plan_comes_back_from_json_as_it_was(plan: Plan) -> None:
    text = dump_plan(plan, form="json")
    assert repr(to_json(as_plan(load_plan(text)))) == repr(to_json(plan))
    assert json.loads(text) == load_plan(text) == load_plan(dump_plan(plan))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="ab:-?#&*!|>'\"%@{}[],\n\t \x00~<=\\", max_size=60))
def test_any_text_is_a_plan_or_an_error_that_says_what_to_do(text: str) -> None:
    try:
        said = ""
        data = load_plan(text)
    except ConfigError as error:
        said, data = str(error), {"steps": []}
    assert not said or said.startswith("the plan cannot be read: ")
    assert isinstance(data["steps"], list)


def test_a_written_plan_reads_well() -> None:
    plan = Plan(
        thought="Look, then write.",
        steps=(
            Step(
                id="p", description="Find Bob", depends_on=(), call=PlannedCall("find", {"name": "Bob", "at": "09:30"})
            ),
            Step(
                id="m",
                description="Mail Bob",
                call=PlannedCall("send", {"to": "${p.result.mail}", "body": "Hi\n\nBob\n"}),
            ),
            Step(
                id="s", description="Sum", compute={"sum": "${p.result[*].n}"}, from_={"n": "result.n"}, check="n > `1`"
            ),
        ),
    )
    assert dump_plan(plan, goal="Mail Bob") == (
        "goal: Mail Bob\n"
        "thought: Look, then write.\n"
        "steps:\n"
        "  - id: p\n"
        "    description: Find Bob\n"
        "    depends_on: []\n"
        "    call:\n"
        "      tool: find\n"
        "      arguments:\n"
        "        name: Bob\n"
        "        at: 09:30\n"
        "  - id: m\n"
        "    description: Mail Bob\n"
        "    call:\n"
        "      tool: send\n"
        "      arguments:\n"
        "        to: ${p.result.mail}\n"
        "        body: |\n"
        "          Hi\n"
        "\n"
        "          Bob\n"
        "  - id: s\n"
        "    description: Sum\n"
        "    compute:\n"
        "      sum: ${p.result[*].n}\n"
        "    from:\n"
        "      n: result.n\n"
        "    check: n > `1`\n"
    )


def test_what_older_readers_take_for_something_else_and_what_looks_like_something_else_is_quoted() -> None:
    for text in ("no", "on", "10:30", "2024-01-31", "1e3", "1_000", "~"):
        assert dump_plan(Plan(thought=text)) == f"thought: '{text}'\nsteps: []\n"
    assert dump_plan(Plan(thought="\u202eabc\x1b")) == 'thought: "\\u202Eabc\\e"\nsteps: []\n'
    assert dump_plan(Plan(thought="שלום 🙂")) == "thought: שלום 🙂\nsteps: []\n"


def test_the_json_of_a_plan_is_written_like_the_plan() -> None:
    plan = Plan(steps=(Step(id="a", description="A", call=PlannedCall("t")),), revision=2)
    assert dump_plan(to_json(plan)) == dump_plan(plan)
    assert dump_plan({"steps": [{"description": "A", "id": "a", "call": {"arguments": None, "tool": "t"}}, 7]}) == (
        "steps:\n  - id: a\n    description: A\n    call:\n      tool: t\n  - 7\n"
    )


def test_a_check_that_is_false_or_nothing_is_no_default() -> None:
    plan = Plan(steps=(Step(id="a", description="A", compute={"value": None}, check=False, depends_on=()),))
    assert as_plan(load_plan(dump_plan(plan))) == plan


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("Yes", "Yes"),
        ("09:30", "09:30"),
        ("2024-01-31", "2024-01-31"),
        ("007", "007"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("+49", "+49"),
        (".5", ".5"),
        (".inf", ".inf"),
        ("1.2.3", "1.2.3"),
        ("1e3", 1000.0),
        ("1.50", 1.5),
        ("-7", -7),
        ("18446744073709551615", 2**64 - 1),
        ("18446744073709551616", "18446744073709551616"),
        ("1e999", "1e999"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("~", None),
        ("'no'", "no"),
        ('"1"', "1"),
        ("${a.result[*].x}", "${a.result[*].x}"),
        ("'a\\b'", "a\\b"),
        ("|\n  a\n\n  b", "a\n\nb\n"),
        (">\n  a\n  b", "a b\n"),
        ("a # comment", "a"),
        ("a#no comment", "a#no comment"),
    ],
)
def test_values_are_what_they_look_like(written: str, value: Any) -> None:
    found = load_plan(f"steps: []\ngoal: {written}\n")["goal"]
    assert found == value
    assert type(found) is type(value)


def test_names_are_texts() -> None:
    data = load_plan("steps: []\non: 1\n1: 2\ntrue: 3\nnull: 4\n2024-01-31: 5\n'': 6\n<<: 7\n")
    assert list(data) == ["steps", "on", "1", "true", "null", "2024-01-31", "", "<<"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "it is empty; write `steps:`"),
        ("# only a comment\n", "it is empty"),
        ("null", "it is empty"),
        ("- id: a\n", "it is not a set of fields; write `steps:`"),
        ("plan", "it is not a set of fields"),
        ("goal: x\n", "it has no list `steps`"),
        ("steps: {a: 1}\n", "it has no list `steps`"),
        ("steps: []\nsteps: []\n", "line 2, column 1: the field 'steps' is there twice; leave one out"),
        ("steps:\n  - id: a\n    call: {tool: a, tool: b}\n", "line 3, column 21: the field 'tool' is there twice"),
        ('{"steps": [],\n "steps": []}', "line 2, column 2: the field 'steps' is there twice"),
        ('{"steps": [],\n\t"steps": []}', "line 2, column 2: the field 'steps' is there twice"),
        ('{"steps": [,]}', "line 1, column 12: Expecting value; mend it there"),
        ('{"steps": [], "goal": NaN}', "NaN is no value that a plan can hold"),
        ('{"steps": [], "goal": 1e999}', "a number that is too large"),
        ("steps:\n\t- id: a\n", "line 2, column 1: "),
        ("steps:\n\t- id: a\n", "indent with spaces, not tabs"),
        ("steps:\n- description: Look: there\n", "a text with `: ` in it stands in quotes"),
        ("steps: [{to: ${a.result}x}]\n", "`${...}` too"),
        ("steps: [*a]\n", "line 1, column 9: anchors and aliases (& and *) are not used in plans; write it out"),
        ("a: &a [1]\nsteps: [*a]\n", "line 1, column 4: anchors and aliases"),
        ("steps: [*]\n", "line 1"),
        (
            "goal: !!python/object/apply:os.system [x]\nsteps: []",
            "the tag 'tag:yaml.org,2002:python/object/apply:os.system'",
        ),
        ("goal: !!str 1\nsteps: []", "line 1, column 7: the tag"),
        ("steps: []\n---\nsteps: []\n", "a file holds one plan"),
        ("[a]: 1\nsteps: []", "a field's name is a text"),
        ("goal: a\nx: \x1b\nsteps: []", "line 2: "),
        ("goal: @me\nsteps: []", "a text that begins with this character stands in quotes"),
        ("steps: " + "[" * 5000 + "]" * 5000, "nested deeper than 64 levels"),
        ("steps: " + "[" * 80 + "]" * 80, "nested deeper than 64 levels"),
        ('{"steps": ' + "[" * 100000 + "]" * 100000 + "}", "nested deeper than 64 levels"),
    ],
)
def test_a_broken_file_is_told_with_its_line_and_what_to_do(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_plan(text)
    assert said in str(caught.value)
    assert str(caught.value).startswith("the plan cannot be read: ")


def test_aliases_cannot_blow_up() -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    with pytest.raises(ConfigError, match="line 1"):
        load_plan("\n".join([*lines, "steps: []"]))


def test_a_mapping_in_flow_style_and_a_byte_order_mark_are_read() -> None:
    assert load_plan("\ufeff{goal: x, steps: [{id: a}]}") == {"goal": "x", "steps": [{"id": "a"}]}
    assert load_plan('\ufeff {"steps": [], "goal": "\\ud800"}') == {"steps": [], "goal": "�"}
    assert load_plan("steps: []\r\ngoal: x\r\n") == {"steps": [], "goal": "x"}


def test_unknown_fields_are_told_with_their_place_and_the_likely_name() -> None:
    data = load_plan(
        "goal: x\nsteps:\n  - id: a\n    dependson: []\n    call: {tool: t, args: {}}\n  - 7\n"
        "  - id: b\n    from: {}\n    zzz: 1\ncolour: red\n"
    )
    assert unknown_fields(data) == [
        "colour",
        "steps[0].dependson (depends_on?)",
        "steps[0].call.args (arguments?)",
        "steps[2].zzz",
    ]
    assert unknown_fields({"steps": None}) == []
    assert unknown_fields([]) == []


def test_a_plan_of_two_thousand_steps_is_read_and_written() -> None:
    plan = Plan(steps=tuple(Step(id=f"s{n}", description=f"Step {n}", call=PlannedCall("t", {})) for n in range(2000)))
    assert as_plan(load_plan(dump_plan(plan))) == plan


def test_the_plan_of_the_documentation_is_one() -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.DOTALL)
    data = load_plan(text)
    assert unknown_fields(data) == []
    plan = as_plan(data)
    assert dump_plan(plan, goal=data["goal"]) == text
    needs = dependencies(plan.steps)
    assert (needs["warmest"], needs["letter"]) == (("oslo", "lisbon", "tokyo"), ("bob", "warmest"))
