from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.planning import Plan, PlannedCall, Step
from replan.planning.lint import Context, Finding, lint
from replan.planning.plan import make_plan
from replan.planning.references import references
from replan.planning.schedule import dependencies, in_order
from replan.tool import ToolInfo

ORDERS = {
    "type": "object",
    "properties": {
        "customer_id": {"type": "integer"},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"total": {"type": "number"}}}},
    },
}


def info(name: str, *required: str, read_only: bool = True, **options: Any) -> ToolInfo:
    kinds = {"n": "integer", "on": "boolean", "tags": "array", "sum": "number"}
    names = [*required, *options.pop("optional", ())]
    properties = {n: {"type": kinds.get(n, "string"), **options.pop(n, {})} for n in names}
    schema = {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}
    return ToolInfo(name=name, description="", parameters=schema, read_only=read_only, **options)


LOOK = info("look", "key", optional=("n", "on"))
FIND = info("find", "name", output_schema=ORDERS)
FILES = info("files", optional=("n",))
SEND = info("send", "to", optional=("body", "cc"), read_only=False)
PAY = info("pay", "sum", read_only=False)
TOOLS = [LOOK, FIND, FILES, SEND, PAY]


def step(ident: str, tool: str | None = None, description: str = "", **arguments: Any) -> Step:
    more = {name: arguments.pop(name) for name in Step.__struct_fields__ if name in arguments}
    call = PlannedCall(tool, arguments or None) if tool else None
    return Step(id=ident, description=description or ident, call=call, **more)


def linted(
    *steps: Step, tools: list[ToolInfo] | None = None, **options: Any
) -> tuple[list[Step], list[str], list[str]]:
    """The steps after lint, the texts of what was mended, and the problems."""
    options.setdefault("shapes", {"find": ORDERS})
    tools = TOOLS if tools is None else tools
    plan, findings, problems = lint(Plan(steps=steps), tools, context=Context(**options))
    again = lint(plan, tools, context=Context(**options))
    assert again[0] == plan
    assert [finding for finding in again[1] if finding.mended] == again[2] == []
    return list(plan.steps), [finding.text for finding in findings if finding.mended], problems


def noted(*steps: Step, **options: Any) -> list[Finding]:
    """What is said of steps and leaves them as they are."""
    options.setdefault("shapes", {"find": ORDERS})
    plan, findings, problems = lint(Plan(steps=steps), TOOLS, context=Context(**options))
    assert plan.steps == steps
    assert problems == []
    assert not any(finding.mended for finding in findings)
    return findings


def arguments(done: Step) -> Any:
    assert done.call is not None
    return done.call.arguments


def ids(steps: list[Step]) -> list[str]:
    return [step.id for step in steps]


def test_a_sound_plan_stays_as_it_is():
    steps = [
        step("c", "find", name="Ann"),
        step("o", "look", key="${c.result.customer_id}", n=5),
        step("s", compute={"sum": "${c.rows[*].total}"}, depends_on=("o",)),
        step("m", "send", to="ann", body="${s.text}"),
    ]
    assert linted(*steps) == (steps, [], [])


# ---- tools


@pytest.mark.parametrize("name", ["Look", "LOOK", "loo-k", "functions.look", "srv__look", "mcp/look", "looks", "lok"])
def test_a_tool_that_reads_is_found_however_it_is_spelt(name: str):
    [done], mended, problems = linted(step("a", name, key="x"))
    assert done.call == PlannedCall("look", {"key": "x"})
    assert problems == []
    assert mended in ([], [f"step 'a' called {name!r}, which was read as 'look'"])


def test_a_tool_that_writes_is_only_found_where_nothing_else_can_be_meant():
    assert linted(step("a", "tools.Send", to="x"))[0][0].call == PlannedCall("send", {"to": "x"})
    [done], _, problems = linted(step("a", "sent", to="x"))
    assert done.call is None
    assert problems == ["Step 'a' called the unknown tool 'sent' (did you mean 'send'?)."]
    assert linted(step("a", "chat.send", to="x"))[0][0].call is None


def test_a_call_of_an_unknown_tool_becomes_the_executors_with_what_was_planned():
    [done], mended, problems = linted(step("a", "teleport", "Go there", to="Rome", by=None))
    assert (done.call, done.requires_tools, done.suggested_tools) == (None, True, ())
    assert done.description == 'Go there (planned: teleport({"to":"Rome"}))'
    assert problems == ["Step 'a' called the unknown tool 'teleport'."]
    assert mended == ["step 'a' called the unknown tool 'teleport'; the executor chooses one instead"]


def test_unknown_suggestions_are_dropped():
    [done], mended, problems = linted(step("a", suggested_tools=("look", "nothing", "FIND", "look")))
    assert (done.suggested_tools, done.requires_tools, problems) == (("look", "find"), False, [])
    assert mended == ["step 'a' suggested unknown tools, which were dropped: 'nothing'"]
    [done], _, _ = linted(step("a", suggested_tools=("nothing", "no")))
    assert (done.suggested_tools, done.requires_tools) == ((), True)
    assert linted(step("a"))[0][0].requires_tools is False


def test_a_tool_may_be_called_by_its_servers_name_where_that_is_clear():
    tools = [
        ToolInfo(name=name, description="", parameters={"type": "object"}, original=original, server=server)
        for name, original, server in [
            ("docs__find", "find", "docs"),
            ("mail__send", "send", "mail"),
            ("chat__send", "send", "chat"),
        ]
    ]
    assert linted(step("a", "find", x=1), tools=tools)[0][0].call == PlannedCall("docs__find", {"x": 1})
    assert linted(step("a", "mail.send"), tools=tools)[0][0].call == PlannedCall("mail__send")
    [done], _, problems = linted(step("a", "send"), tools=tools)
    assert done.call is None
    assert "'chat__send' or 'mail__send'" in problems[0]


# ---- arguments


def test_values_are_read_again_where_there_is_one_reading():
    [done], mended, problems = linted(step("a", "look", key=5, n="7", on="true"))
    assert arguments(done) == {"key": "5", "n": 7, "on": True}
    assert mended == [
        f"step 'a': the value of {n!r} was read as {v}" for n, v in [("key", '"5"'), ("n", 7), ("on", "true")]
    ]
    assert problems == []


def test_arguments_of_other_names_are_read_as_those_meant_or_dropped():
    [done], mended, problems = linted(step("a", "look", Key="x", nn=2, colour="red"))
    assert arguments(done) == {"key": "x", "n": 2}
    assert problems == []
    assert mended[-1] == "step 'a': look has no argument 'colour'; it has key, n, on; it was dropped (\"red\")"
    [done], _, problems = linted(step("a", "send", to="x", priority="high"))
    assert arguments(done) == {"to": "x"}
    assert problems == ["Step 'a': send has no argument 'priority'; it has to, body, cc."]


def test_a_tool_that_takes_more_than_it_says_is_given_it():
    lax = ToolInfo(name="lax", description="", parameters={"type": "object", "properties": {"key": {}}}, read_only=True)
    assert linted(step("a", "lax", key=1, other=2), tools=[lax])[1] == []


def test_arguments_inside_an_envelope_are_taken_out():
    [done], mended, _ = linted(Step(id="a", description="a", call=PlannedCall("look", {"arguments": {"key": "x"}})))
    assert arguments(done) == {"key": "x"}
    assert mended == ["step 'a': the arguments stood inside 'arguments'"]


def test_a_wrong_value_is_told_and_left_open():
    [done], mended, problems = linted(step("a", "pay", sum=["much"]))
    assert arguments(done) == {"sum": None}
    assert done.description == 'a (planned: sum = ["much"])'
    assert len(problems) == 1
    assert problems[0].startswith("Step 'a', pay: 'sum': expected number")
    assert mended[0].endswith("; a model fills it in")


def test_a_wrong_value_that_could_be_left_out_is_not_left_out():
    [done], _, problems = linted(step("a", "look", key="x", n="many"))
    assert (done.call, done.suggested_tools) == (None, ("look",))
    assert done.description == 'a (planned: look({"key":"x","n":"many"}))'
    assert len(problems) == 1


def test_arguments_that_are_wrong_together_are_the_executors():
    schema = {"type": "object", "properties": {"a": {}, "b": {}}, "minProperties": 2}
    both = ToolInfo(name="both", description="", parameters=schema, read_only=True)
    [done], _, problems = linted(step("s", "both", a=1), tools=[both])
    assert (done.call, done.suggested_tools) == (None, ("both",))
    assert len(problems) == 1
    assert linted(step("s", "both", a=1, b=2), tools=[both])[2] == []


def test_open_arguments_stay_open():
    steps = [step("a", "look", "first", key=None), step("b", "send", "two", to="x", cc=None), step("c", "pay", "three")]
    assert linted(*steps)[0] == steps


def test_a_schema_that_cannot_be_used_checks_nothing():
    odd = ToolInfo(name="odd", description="", parameters={"type": "object", "properties": {"a": {"type": "odd"}}})
    assert linted(step("s", "odd", a=1), tools=[odd])[2] == []


# ---- references


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${zz.result}", "${zz.result}: there is no step 'zz'; there are 'c', 'o'"),
        ("to ${zz}", "there is no step 'zz'"),
        ("${c.result.total}", "there is no 'total'; there are 'customer_id', 'rows'"),
        ("${c.rows.total}", "the value is a list"),
        ("${c.rows[*]}", "${c.rows[*]} is array, and string is needed"),
        ("${c}", "${c} is object, and string is needed"),
        ("${o.result}", "it uses its own result"),
        ("${c.result['x'].y z}", "is not a reference; write it like ${step.result.items[0].id}"),
    ],
)
def test_a_reference_that_cannot_be_is_told_and_left_open(text: str, words: str):
    [_, done], mended, problems = linted(step("c", "find", name="Ann"), step("o", "look", key=text))
    assert arguments(done) == {"key": None}
    assert len(problems) == 1
    assert words in problems[0]
    assert problems[0].startswith("Step 'o', argument 'key': ")
    assert any(text.endswith("; a model fills it in") for text in mended)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("${c.result.customerId}", "${c.result.customer_id}"),
        ("${c.result.result.customer_id}", "${c.result.customer_id}"),
        ("id ${ c.customer_id }", "id ${c.customer_id}"),
        ("${c['customer_id']}", '${c["customer_id"]}'),
    ],
)
def test_a_reference_that_is_only_written_otherwise_is_mended(text: str, meant: str):
    [_, done], mended, problems = linted(step("c", "find", name="Ann"), step("o", "look", key=text))
    assert arguments(done) == {"key": meant}
    assert (len(mended), problems) == (1, [])


def test_what_only_looks_like_a_reference_is_text():
    assert linted(step("a", "send", to="x", body="Dear ${first name}, $${a.x} ${HOME}"))[1:] == ([], [])


def test_what_is_not_known_before_it_is_there_is_said_and_kept():
    learnt = {**ORDERS, "$comment": "learnt from results", "additionalProperties": False}
    steps = [step("c", "look", key="x"), step("o", "look", key="${c.result.id}")]
    [found] = noted(*steps)
    assert (found.step, found.kind) == ("o", "unchecked")
    [found] = noted(*steps, shapes={"look": learnt})
    assert (found.step, found.kind) == ("o", "unseen")
    assert "there is no 'id'; there are 'customer_id', 'rows'" in found.text
    assert noted(steps[0], step("o", "look", key="${c.result}")) == []


def test_results_have_the_names_that_steps_give_them():
    named = step(
        "c", "find", name="Ann", from_={"first": "rows[0].total"}, produces={"customer_id": {"type": "integer"}}
    )
    good = [
        step("a", "look", key="${c.first}"),
        step("b", "look", "b", key="${c.customer_id}", n="${c.result.customer_id}"),
    ]
    assert linted(named, *good)[2] == []
    [_, done], mended, problems = linted(named, step("o", "look", key="${c.rows[0].total}"))
    assert (arguments(done), problems) == ({"key": "${c.result.rows[0].total}"}, [])
    assert len(mended) == 1
    _, _, problems = linted(named, step("o", "look", key="x", on="${c.first}"))
    assert problems == ["Step 'o', argument 'on': ${c.first} is number, and boolean is needed."]


def test_an_open_step_gives_its_text_and_what_it_is_to_produce():
    opened = step("c", produces={"price": {"type": "number"}})
    assert linted(opened, step("a", "pay", sum="${c.price}"), step("b", "send", to="${c.result}"))[2] == []
    _, _, problems = linted(step("c"), step("a", "pay", sum="${c.price}"))
    assert "the step 'c' gives only 'result'; name what else it gives in its 'produces'" in problems[0]
    [_, done], _, problems = linted(step("c"), step("b", "send", to="${c}"))
    assert (arguments(done), problems) == ({"to": "${c.result}"}, [])


def test_a_computed_result_stands_under_result():
    top = step("w", compute={"max": [1, 2]})
    [_, done], _, problems = linted(top, step("m", "send", to="${w.name}", body="${w.label} ${w.text} ${w}"))
    assert arguments(done) == {"to": "${w.result.name}", "body": "${w.label} ${w.text} ${w.result}"}
    assert problems == []


def test_outputs_without_a_place_or_a_schema_are_dropped():
    from_ = {"a": "nope", "b": "a[", "c": "rows"}
    [done], _, problems = linted(step("c", "find", name="x", from_=from_, produces={"d": {"type": "odd"}, "e": {}}))
    assert (done.from_, done.produces) == ({"c": "rows"}, {})
    assert [problem.split(":")[0] for problem in problems] == [f"Step 'c', output {n!r}" for n in ("d", "a", "b", "e")]


def test_what_is_no_reference_in_a_description_is_text():
    text = "Use ${HOME}, ${x} and ${c.rows}, not ${c.nope}, ${o.result} or ${c.a b}"
    [_, done], _, problems = linted(step("c", "find", name="x"), step("o", description=text))
    assert done.description == "Use ${HOME}, ${x} and ${c.rows}, not c.nope, o.result or c.a b"
    assert problems == []


def test_a_reference_to_an_earlier_step_of_the_run_is_checked_by_what_it_gave():
    shape = {"type": "object", "properties": {"result": {**ORDERS, "additionalProperties": False}}}
    known = {
        "k1": {"call": None, "ok": True, "shape": shape},
        "k2": {"call": None, "ok": False, "shape": None},
        "k3": {"call": None, "ok": True, "shape": None},
    }
    taken = ["k1", "k2", "k3", "k4"]
    for text in ("${k1.customer_id}", "${k1.result.customer_id}", "${k3.what}"):
        assert linted(step("a", "look", key=text), known=known, taken=taken)[2] == []
    for text, words in [
        ("${k1.nope}", "there is no 'nope'"),
        ("${k2}", "the step 'k2' failed and gave nothing"),
        ("${k4}", "there is no step 'k4'"),
    ]:
        [done], _, problems = linted(step("a", "look", key=text), known=known, taken=taken)
        assert arguments(done) == {"key": None}
        assert words in problems[0]
    assert linted(step("a", "look", key="${k4.x}"), taken=taken)[2] == []


# ---- order


def test_what_is_needed_comes_first():
    done, mended, problems = linted(step("m", "send", to="${c.customer_id}"), step("c", "find", name="x"))
    assert ids(done) == ["c", "m"]
    assert (mended, problems) == (["step 'm' needs 'c' and was moved behind"], [])


def test_unknown_needs_and_a_need_of_itself_are_dropped():
    done, mended, problems = linted(
        step("a", "look", key="x"), step("b", "find", name="y", depends_on=("zz", "b", "a"))
    )
    assert done[1].depends_on == ("a",)
    assert (len(mended), problems) == (2, [])
    done, _, _ = linted(step("a", "look", key="x"), step("b", "find", name="y", depends_on=("zz",)))
    assert done[1].depends_on is None


def test_steps_that_wait_for_each_other_are_told_and_go_in_order():
    a, b = step("a", "look", key="x", depends_on=("b",)), step("b", "find", name="y", depends_on=("a",))
    done, _, problems = linted(a, b)
    assert (ids(done), done[0].depends_on, done[1].depends_on) == (["a", "b"], None, ("a",))
    assert problems == ["Step 'a' and 'b' wait for each other."]


def test_results_that_need_each_other_are_told_and_one_is_left_open():
    done, _, problems = linted(step("a", "look", key="${b.result}"), step("b", "look", key="${a.result}"))
    assert ids(done) == ["a", "b"]
    assert [arguments(s) for s in done] == [{"key": None}, {"key": "${a.result}"}]
    assert problems == ["Step 'a' uses the result of 'b', which needs it itself."]


def test_a_circle_closed_by_the_order_of_the_list_is_none():
    done, _, problems = linted(
        step("a", "look", key="${c.result}"), step("b", "find", name="x"), step("c", "files", n=1)
    )
    assert (ids(done), problems) == (["b", "c", "a"], [])


def test_calls_that_wait_for_results_come_behind_the_look_ups():
    waits, looks = step("a", "pay", sum=None), [step("b", "look", key="x"), step("c", "look", key="y")]
    assert ids(linted(waits, *looks, step("d", "send", to=None))[0]) == ["b", "c", "a", "d"]
    assert ids(linted(step("a", "pay"), *looks)[0]) == ["b", "c", "a"]
    assert ids(linted(*looks, waits)[0]) == ["b", "c", "a"]
    assert ids(linted(waits, step("b"))[0]) == ["a", "b"]
    assert ids(linted(step("a", "files"), *looks)[0]) == ["a", "b", "c"]
    assert ids(linted(step("a", compute={"max": None}), *looks)[0]) == ["b", "c", "a"]


def test_a_write_that_is_filled_in_waits_for_the_look_ups_that_nothing_else_uses():
    steps = [
        step("w", "look", key="x", depends_on=()),
        step("p", "find", name="Bob", depends_on=()),
        step("m", "send", to="${p.customer_id}", body=None),
        step("n", "pay", sum=None, depends_on=("p",)),
    ]
    pay = info("send", "to", "body", read_only=False)
    done, mended, problems = linted(*steps, tools=[LOOK, FIND, pay, PAY])
    assert done[2].depends_on == ("w",)
    assert dependencies(done)["m"] == ("w", "p")
    assert done[3].depends_on == ("p", "m")
    assert mended == ["step 'm' is filled in from results, and now waits for 'w'"]
    assert problems == []


def test_more_steps_than_allowed_are_cut_off():
    steps = [step(name, "look", key=name) for name in "abcd"]
    done, mended, problems = linted(*steps, max_steps=2)
    assert (ids(done), problems) == (["a", "b"], [])
    assert mended == ["the plan has 4 steps, and at most 2 are allowed; left out: 'c', 'd'"]
    done, _, problems = linted(*steps, step("e", "send", to="x"), max_steps=2)
    assert problems == ["The plan has 5 steps, and at most 2 are allowed."]


# ---- repeats


def test_a_step_that_repeats_a_call_is_left_out():
    done, mended, _ = linted(step("a", "look", key="x"), step("b", "look", key="y"), step("c", "look", key="x"))
    assert ids(done) == ["a", "b"]
    assert mended == ["step 'c' repeated an earlier one and was left out"]
    assert ids(linted(step("a", "send", to="x"), step("b", "send", to="x"))[0]) == ["a"]


def test_a_look_after_a_change_is_no_repetition():
    look = {"key": "balance"}
    assert ids(linted(step("a", "look", **look), step("b", "pay", sum=5), step("c", "look", **look))[0]) == [
        "a",
        "b",
        "c",
    ]
    assert ids(linted(step("a", "look", **look), step("b"), step("c", "look", **look))[0]) == ["a", "b", "c"]


def test_calls_with_open_arguments_repeat_only_in_the_same_words():
    assert ids(linted(step("a", "look", "first"), step("b", "look", "second"))[0]) == ["a", "b"]
    assert ids(linted(step("a", "look", "first"), step("b", "look", "first"))[0]) == ["a"]
    assert ids(linted(step("a", "look", "first", key=None), step("b", "look", "second", key=None))[0]) == ["a", "b"]
    assert ids(linted(step("a"), step("b"))[0]) == ["a", "b"]


def test_references_to_a_repetition_go_to_what_it_repeated():
    steps = [
        step("a", "find", name="x"),
        step("b", "find", name="x"),
        step("m", "send", to="${b.customer_id}", depends_on=("b",)),
    ]
    done, _, problems = linted(*steps)
    assert (arguments(done[1]), done[1].depends_on, problems) == ({"to": "${a.customer_id}"}, ("a",), [])
    named = step("b", "find", name="x", from_={"id": "customer_id"})
    assert ids(linted(steps[0], named)[0]) == ["a", "b"]


def test_a_call_that_the_run_has_made_is_not_planned_again():
    look: dict[str, Any] = {"call": {"tool": "look", "arguments": {"key": "x", "n": None}}, "ok": True, "shape": None}
    sent: dict[str, Any] = {"call": {"tool": "send", "arguments": {"to": "x"}}, "ok": True, "shape": None}
    again = [step("a", "look", key="x"), step("b", "look", key="${a.id}")]
    done, mended, problems = linted(*again, known={"k1": look})
    assert (ids(done), arguments(done[0]), problems) == (["b"], {"key": "${k1.id}"}, [])
    assert mended == ["step 'a' repeated an earlier one and was left out"]
    assert ids(linted(*again, known={"k1": look, "k2": sent})[0]) == ["a", "b"]
    assert ids(linted(step("a", "send", to="x"), known={"k2": sent, "k3": look})[0]) == []
    assert ids(linted(step("b", "pay", sum=1), step("a", "send", to="x"), known={"k2": sent})[0]) == ["b", "a"]


def test_a_call_that_failed_is_not_planned_again_unchanged():
    failed: dict[str, Any] = {"call": {"tool": "look", "arguments": {"key": "x"}}, "ok": False, "shape": None}
    done, mended, problems = linted(step("a", "look", key="x"), step("b", "find", name="${a.id}"), known={"k1": failed})
    assert (ids(done), arguments(done[0])) == (["b"], {"name": None})
    assert "step 'a' repeated the call of 'k1', which failed; left out" in mended
    assert problems == []
    assert ids(linted(step("a", "look", key="y"), known={"k1": failed})[0]) == ["a"]


# ---- what is missing, and what nobody needs


def test_a_write_that_the_planner_meant_to_use_is_added_at_the_end():
    done, mended, _ = linted(step("a", "look", key="x"), uses=["send", "look"], taken=["s2"])
    assert (done[-1].id, done[-1].call) == ("s3", PlannedCall("send", None))
    assert mended == ["the plan uses 'send' without a step for it; step 's3' was added"]


def test_nothing_is_added_where_it_is_planned_or_left_to_the_executor_or_too_much():
    look = step("a", "look", key="x")
    assert linted(look, step("b", "send"), uses=["send"])[1] == []
    assert linted(look, step("b"), uses=["send"])[1] == []
    assert ids(linted(look, uses=["send"], max_steps=1)[0]) == ["a"]
    assert linted(look, uses=["look"])[1] == []
    suggesting = step("b", "look", key="y", suggested_tools=("pay",))
    assert linted(look, suggesting, uses=["pay"])[1] == []


def test_a_look_up_that_nothing_uses_is_said_where_something_is_written():
    look, send = step("a", "look", key="x", depends_on=()), step("b", "send", to="x", depends_on=())
    [found] = noted(look, send)
    assert (found.step, found.kind, found.text) == ("a", "unused", "nothing uses the result of step 'a'")
    assert noted(look) == []
    assert noted(send, step("a", "look", key="x")) == []


# ---- computations and checks


def test_a_computation_that_cannot_be_is_told_and_becomes_the_executors():
    [done], _, problems = linted(step("s", description="Add", compute={"sum": 5, "max": 1}))
    assert done.compute is None
    assert done.description.startswith("Add (planned: compute {")
    assert problems[0].startswith("Step 's': compute takes exactly one of")
    assert ids(linted(step("s", compute={"sum": 5}), kinds=frozenset(["direct", "bound"]))[0]) == []


def test_a_computation_with_what_is_not_there_is_filled_in():
    done, _, problems = linted(step("a", "look", key="x"), step("s", compute={"max": ["${a.x}", "${zz}"]}))
    assert done[1].compute == {"max": None}
    assert "there is no step 'zz'" in problems[0]
    where = {"by": "a", "is": "<", "than": "${zz}"}
    done, _, _ = linted(step("a", "look", key="x"), step("s", compute={"count": "${a}", "where": where}))
    assert done[1].compute is None


def test_a_step_is_a_call_or_a_computation():
    [done], _, problems = linted(step("a", "look", key="x", compute={"value": "1"}))
    assert (done.compute, done.call) == (None, PlannedCall("look", {"key": "x"}))
    assert problems == ["Step 'a' has a call and a compute; make two steps of it."]


@pytest.mark.parametrize(
    "check",
    [
        "length(",
        {"schema": {"type": "odd"}},
        {"function": "other"},
        {"call": {"tool": "send", "arguments": {"to": "x"}}},
        {"call": {"tool": "nothing"}},
        {"call": {"tool": "look", "arguments": {}}},
        {"call": {"tool": "look", "arguments": {"key": "${zz}"}}},
        {"call": {"tool": "look", "arguments": {"key": "x", "n": "many"}}},
        {"what": 1},
        5,
    ],
)
def test_a_check_that_cannot_be_made_is_told_and_dropped(check: Any):
    [done], _, problems = linted(step("a", "look", key="x", check=check), checks=["ours"])
    assert done.check is None
    assert len(problems) == 1
    assert problems[0].startswith("Step 'a'")


@pytest.mark.parametrize(
    "check",
    [
        "result.id == `5`",
        {"schema": {"type": "object"}},
        {"function": "ours"},
        {"call": {"tool": "look", "arguments": {"key": "${a.result.id}"}}, "expect": {"id": 5}},
    ],
)
def test_a_check_that_can_be_made_stays(check: Any):
    assert linted(step("a", "look", key="x", check=check), checks=["ours"])[0][0].check == check


def test_the_tool_of_a_check_may_be_spelt_otherwise():
    [done], _, _ = linted(step("a", "send", to="x", check={"call": {"tool": "Look", "arguments": {"key": "x"}}}))
    assert done.check["call"]["tool"] == "look"


# ---- kinds


def kinds(*names: str) -> dict[str, Any]:
    return {"kinds": frozenset(names)}


def test_a_call_becomes_open_where_only_that_is_allowed():
    [done], _, problems = linted(step("a", "look", "Look", key="x"), **kinds("open"))
    assert (done.call, done.suggested_tools, problems) == (None, ("look",), [])
    assert done.description == 'Look (planned: look({"key":"x"}))'
    [done], _, _ = linted(step("a", compute={"sum": [1, 2]}), **kinds("open"))
    assert done.description == 'a (planned: compute {"sum":[1,2]})'


def test_a_bound_step_becomes_open_where_it_is_not_allowed_or_is_left_out():
    bound = step("b", "look", key=None)
    [done], _, problems = linted(bound, **kinds("direct", "open"))
    assert (done.call, done.suggested_tools, problems) == (None, ("look",), [])
    done, _, problems = linted(bound, **kinds("direct"))
    assert done == []
    assert problems == ["Step 'b' is bound, and only direct steps are allowed."]


def test_an_open_step_becomes_the_one_call_that_it_suggests_or_is_left_out():
    [done], _, problems = linted(step("o", suggested_tools=("look",)), **kinds("direct", "bound"))
    assert (done.call, problems) == (PlannedCall("look"), [])
    done, _, problems = linted(step("o"), step("a", "look", key="x", depends_on=("o",)), **kinds("direct", "bound"))
    assert (ids(done), done[0].depends_on) == (["a"], None)
    assert problems == ["Step 'o' is open, and only bound, direct steps are allowed."]


def test_what_is_direct_may_be_bound():
    steps = [step("a", "look", key="x"), step("s", compute={"sum": [1]})]
    assert linted(*steps, **kinds("bound"))[0] == steps


def test_what_depends_on_a_step_that_is_left_out_depends_on_what_that_depended_on():
    steps = [step("a", "pay", sum=1), step("o"), step("b", "send", to="x", depends_on=("o",))]
    done, _, _ = linted(*steps, **kinds("direct"))
    assert done[1].depends_on == ("a",)


# ---- any plan


def test_a_plan_without_steps_is_one():
    assert linted() == ([], [], [])


names = st.sampled_from(["a", "b", "c", "d", "k1", "k2", "zz"])
paths = st.sampled_from(["", ".result", ".customer_id", ".rows[*].total", ".nope", ".Rows", ".text", "['x']", " odd"])
refs = st.builds("${{{}{}}}".format, names, paths)
texts = refs | refs.map(lambda text: f"x {text}") | st.sampled_from(["v", "5", "", "$${a}"])
values = st.none() | st.integers(0, 3) | texts | st.lists(texts, max_size=2) | st.booleans()
given_arguments = st.none() | st.dictionaries(st.sampled_from(["key", "n", "To", "sum", "odd"]), values, max_size=3)
tool_names = st.sampled_from(["look", "find", "files", "send", "pay", "Look", "lok", "nothing"])
calls = st.fixed_dictionaries({"tool": tool_names, "arguments": given_arguments})
rough_steps = st.fixed_dictionaries(
    {},
    optional={
        "id": names,
        "description": texts,
        "depends_on": st.lists(names, max_size=3),
        "call": calls,
        "compute": st.dictionaries(st.sampled_from(["max", "sum", "value", "by", "rank"]), values, max_size=2),
        "suggested_tools": st.lists(tool_names, max_size=2),
        "check": st.sampled_from(["a ==", "result > `1`", {"function": "f"}, 5])
        | st.fixed_dictionaries({"call": calls}),
        "produces": st.dictionaries(names, st.sampled_from([{"type": "string"}, {"type": "odd"}, {}]), max_size=2),
        "from": st.dictionaries(names, st.sampled_from(["rows[0].total", "a[", "nope"]), max_size=2),
    },
)
SHAPE = {"type": "object", "properties": {"result": {**ORDERS, "additionalProperties": False}}}
known_steps = st.none() | st.dictionaries(
    st.sampled_from(["k1", "k2"]),
    st.fixed_dictionaries({"call": st.none() | calls, "ok": st.booleans(), "shape": st.sampled_from([None, SHAPE])}),
)


@given(
    raw=st.lists(rough_steps, max_size=7),
    allowed=st.sets(st.sampled_from(["direct", "bound", "open"]), min_size=1),
    known=known_steps,
    most=st.integers(1, 6),
    uses=st.lists(st.sampled_from(["send", "pay"]), max_size=2),
)
def test_any_plan_can_be_run_once_it_is_linted(raw: Any, allowed: Any, known: Any, most: int, uses: list[str]):
    plan, _ = make_plan({"steps": raw}, max_steps=64, taken=["k1", "k2"])
    options: Any = {"max_steps": most, "kinds": allowed, "taken": ["k1", "k2"], "known": known, "uses": uses}
    done, _, _ = linted(*plan.steps, **options)
    here = ids(done)
    there = {*here, *(["k1", "k2"] if known is None else known)}
    assert len(here) == len(set(here)) <= most
    assert in_order(dependencies(done)) == here
    infos = {tool.name: tool for tool in TOOLS}
    for one in done:
        assert set(one.depends_on or ()) <= there - {one.id}
        assert set(references([one.call and one.call.arguments, one.compute])) <= there - {one.id}
        assert set(references(one.check)) <= there
        if one.call is None:
            assert one.compute is not None or "open" in allowed
            continue
        schema: Any = infos[one.call.tool].parameters
        literal = {n: v for n, v in (one.call.arguments or {}).items() if v is not None and not any(references(v))}
        assert set(one.call.arguments or {}) <= set(schema["properties"])
        assert all(type(v).__name__ == TYPES[schema["properties"][n]["type"]] for n, v in literal.items())
        missing = [n for n in schema["required"] if (one.call.arguments or {}).get(n) is None]
        assert not missing or "bound" in allowed


TYPES = {"string": "str", "integer": "int", "boolean": "bool", "number": "int", "array": "list"}
