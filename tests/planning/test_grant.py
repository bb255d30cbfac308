"""What an accepted plan permits, and that nothing else gets through."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.calls import same_call
from replan.encoding import decode, encode
from replan.planning.grant import Grant, GrantEntry, covers, difference, extended, grant_of, outside
from replan.planning.plan import Plan, PlannedCall, Step

FACTS: dict[str, Any] = {
    "send": {"writes": True, "required": ["to", "body"]},
    "delete": {"writes": True, "required": ["path"]},
    "find": {"writes": False, "required": ["name"]},
}


def calls(ident: str, tool: str, /, **arguments: Any) -> Step:
    return Step(id=ident, description=tool, call=PlannedCall(tool, arguments))


def plan(*steps: Step) -> Plan:
    return Plan(steps=steps)


MAIL = plan(calls("p", "find", name="Bob"), calls("m", "send", to="${p.result.mail}", body=None, subject="hello"))


def test_a_planned_write_is_permitted_once():
    grant = grant_of(plan(calls("m", "send", to="bob", body="hi")), FACTS)
    assert covers(grant, "send", {"to": "bob", "body": "hi"}) == "m"
    assert covers(grant, "send", {"to": "bob", "body": "hi"}, ["m"]) is None
    assert difference(grant, "send", {"to": "bob", "body": "hi"}) == "the plan makes this call of 'send' once"


def test_a_planned_read_is_permitted_as_often_as_wanted():
    grant = grant_of(MAIL, FACTS)
    assert covers(grant, "find", {"name": "Bob"}, ["p"]) == "p"


def test_references_and_nulls_are_open_and_the_rest_is_fixed():
    grant = grant_of(MAIL, FACTS)
    whole = {"to": "b@example.com", "body": "see you", "subject": "hello"}
    assert covers(grant, "send", whole) == "m"
    assert covers(grant, "send", {**whole, "to": ["b@example.com", "c@example.com"]}) == "m"
    assert covers(grant, "send", {"to": "b@example.com", "subject": "hello"}) == "m"
    assert covers(grant, "send", {**whole, "subject": "hullo"}) is None
    assert covers(grant, "send", {"to": "b@example.com", "body": "x"}) is None
    assert covers(grant, "send", {"body": "x", "subject": "hello"}) is None
    assert covers(grant, "send", {**whole, "cc": "eve@example.com"}) is None
    assert covers(grant, "delete", {"path": "/"}) is None


def test_a_difference_is_said_in_a_sentence():
    grant = grant_of(MAIL, FACTS)
    whole = {"to": "b@example.com", "body": "x", "subject": "hello"}
    assert difference(grant, "delete", {"path": "/"}) == "'delete' is not in the plan"
    assert difference(grant, "send", {**whole, "subject": 7}) == "`subject` is 7, the plan has 'hello'"
    assert difference(grant, "send", {"to": "x", "cc": None}) == (
        "`subject` is missing, the plan has 'hello'; `cc` is null, the plan does not have it"
    )
    long = difference(grant, "send", {**whole, "subject": "x" * 500})
    assert len(long) < 150
    assert "…" in long


def test_the_nearest_entry_is_compared():
    grant = grant_of(plan(calls("a", "send", to="ann", body="1"), calls("b", "send", to="bob", body="2")), FACTS)
    assert difference(grant, "send", {"to": "bob", "body": "3"}) == "`body` is '3', the plan has '2'"


@pytest.mark.parametrize(
    ("pattern", "value", "fits"),
    [
        ("/data/${p.result.name}.txt", "/data/x.txt", True),
        ("/data/${p.result.name}.txt", "/data/.txt", True),
        ("/data/${p.result.name}.txt", "/etc/x.txt", False),
        ("/data/${p.result.name}.txt", "/data/x.txt.sh", False),
        ("${p.a}-${p.b}", "1-2", True),
        ("${p.a}-${p.b}", "12", False),
        ("a${p.a}a", "a", False),
        ("a${p.a}b${p.b}c${p.c}d", "a1b2c3d", True),
        ("a${p.a}b${p.b}c${p.c}d", "a1c2b3d", False),
        ("${p.a}${p.b}", "anything", True),
        ("/data/${p.result.name}", 5, False),
        ("costs $${x}", "costs ${x}", True),
        ("costs $${x}", "costs 5", False),
        ("${not a reference}", "anything", False),
        ("${p.a} $${ ${p.b}", "1 ${ 2", True),
        ("${p.a} $${ ${p.b}", "1 2", False),
        ({"to": ["${p.a}", "bob"]}, {"to": ["eve", "bob"]}, True),
        ({"to": ["${p.a}", "bob"]}, {"to": ["eve", "eve"]}, False),
        ({"to": ["${p.a}", "bob"]}, {"to": ["eve", "bob", "ann"]}, False),
        ({"limit": None}, {"limit": None}, True),
        ({"limit": None}, {"limit": 9}, False),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ({"a": 1}, [1], False),
        (5, "5", True),
        (True, "True", False),
        (True, 1, False),
        (1.0, 1, True),
        ([], {}, False),
        ("", None, False),
    ],
)
def test_values_are_compared_with_the_plan(pattern: Any, value: Any, fits: bool):
    grant = grant_of(plan(calls("w", "write", path=pattern)), {"write": {"writes": True, "required": ["path"]}})
    assert (covers(grant, "write", {"path": value}) == "w") is fits


def test_a_call_without_arguments_leaves_them_all_open():
    grant = grant_of(plan(Step(id="m", description="Mail", call=PlannedCall("send"))), FACTS)
    assert covers(grant, "send", {"to": "x", "body": "y", "cc": "z"}) == "m"
    assert covers(grant, "send", {"to": "x"}, {"m"}) is None


def test_an_open_step_permits_its_suggested_tools_within_it():
    grant = grant_of(plan(Step(id="s", description="Tidy up", suggested_tools=("find", "delete"))), FACTS)
    for _ in range(2):
        assert covers(grant, "delete", {"path": "/tmp/x"}, ["s"], step="s") == "s"
    assert covers(grant, "delete", {"path": "/tmp/x"}) == "s"
    assert covers(grant, "delete", {"path": "/tmp/x"}, step="t") is None
    assert difference(grant, "delete", {"path": "/"}) == "the plan leaves 'delete' to the step 's' only"
    assert covers(grant, "send", {}, step="s") is None


def test_an_open_step_without_suggestions_permits_nothing():
    assert grant_of(plan(Step(id="s", description="Do it", requires_tools=True)), FACTS) == Grant()
    computed = Step(id="s", description="Add", compute={"sum": "${p.result}"}, suggested_tools=("delete",))
    assert grant_of(plan(computed), FACTS) == Grant()


def test_a_step_uses_its_own_entry_and_leaves_the_others():
    steps = plan(calls("a", "send", to=None, body=None), calls("b", "send", to="bob", body=None))
    grant = grant_of(steps, FACTS)
    given = {"to": "bob", "body": "x"}
    assert covers(grant, "send", given, step="a") == "a"
    assert covers(grant, "send", given, step="b") == "b"
    assert covers(grant, "send", given, step="c") == "b"
    assert covers(grant, "send", given, ["b"], step="c") == "a"
    assert covers(grant, "send", given, ["a", "b"], step="c") is None


def test_a_tool_without_facts_writes():
    assert grant_of(plan(calls("x", "unknown")), {}).entries[0].once


def test_a_grant_survives_json():
    grant = grant_of(MAIL, FACTS)
    assert msgspec.convert(decode(encode(grant)), Grant) == grant


def test_a_revision_that_asks_for_no_more_has_nothing_outside():
    grant = grant_of(MAIL, FACTS)
    again = plan(
        calls("q", "find", name="Robert"), calls("n", "send", to="${q.result.mail}", body="hi", subject="hello")
    )
    assert outside(again, grant, FACTS) == []
    assert extended(grant, again, FACTS).entries[:2] == grant.entries
    assert covers(extended(grant, again, FACTS), "send", {"to": "b", "body": "hi", "subject": "hello"}, ["m"]) is None


def test_what_a_revision_widens_is_outside():
    grant = grant_of(plan(calls("m", "send", to="bob", body=None)), FACTS)
    revised = plan(
        calls("a", "send", to="eve", body=None),
        calls("b", "send", to="${x.result}", body="hi"),
        Step(id="c", description="Mail", call=PlannedCall("send")),
        Step(id="d", description="Clean", suggested_tools=("find", "delete")),
        calls("e", "send", to="bob", body="hi", cc=None),
        calls("m", "send", to="bob", body="hi"),
        calls("f", "send", to="bob", body="hi"),
    )
    found = outside(revised, grant, FACTS)
    assert [(call["step"], call["tool"], call["why"]) for call in found] == [
        ("a", "send", "`to` is 'eve', the plan has 'bob'"),
        ("b", "send", "`to` is '${x.result}', the plan has 'bob'"),
        ("c", "send", "the arguments are left open, and the plan has some"),
        ("d", "delete", "'delete' is not in the plan"),
        ("e", "send", "`cc` is null, the plan does not have it"),
        ("f", "send", "the plan makes this call of 'send' once"),
    ]
    assert [call["arguments"] for call in found][:4] == [
        {"to": "eve", "body": None},
        {"to": "${x.result}", "body": "hi"},
        None,
        None,
    ]
    assert outside(revised, grant, FACTS, ["m"])[-2]["step"] == "m"
    for step, call in (("a", {"to": "eve", "body": "x"}), ("e", {"to": "bob", "body": "hi", "cc": "eve"})):
        assert covers(grant, "send", call, step=step) is None


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [
        ("/data/${a.x}", "/data/${b.y}", True),
        ("/data/${a.x}", "/data/fixed", True),
        ("/data/${a.x}", "/${b.y}", False),
        ("/data/${a.x}", "${b.y}", False),
        ("/data/fixed", "/data/${b.y}", False),
        ("/data/fixed", None, False),
        ("${a.x}", None, True),
        (None, "${b.y}", True),
        ("$${x}", "$${x}", True),
        ([1, "${a.x}"], [1, 2], True),
        ([1, 2], [1, "${a.x}"], False),
    ],
)
def test_a_revised_pattern_must_lie_within_the_old_one(old: Any, new: Any, fits: bool):
    facts: dict[str, Any] = {"write": {"writes": True, "required": ["path"]}}
    grant = grant_of(plan(calls("w", "write", path=old)), facts)
    assert (outside(plan(calls("v", "write", path=new)), grant, facts) == []) is fits


def test_accepting_a_revision_permits_it():
    grant = grant_of(plan(calls("m", "send", to="bob", body="hi"), calls("d", "delete", path="/tmp/a")), FACTS)
    revised = plan(
        calls("m", "send", to="rob", body="hi"),
        calls("n", "delete", path="/tmp/a"),
        calls("o", "delete", path="/tmp/a"),
        Step(id="s", description="Tidy up", suggested_tools=("delete",)),
    )
    wider = extended(grant, revised, FACTS)
    assert covers(wider, "send", {"to": "rob", "body": "hi"}, step="m") == "m"
    assert covers(wider, "send", {"to": "bob", "body": "hi"}, step="m") is None  # the step was changed
    used: list[Any] = [covers(wider, "delete", {"path": "/tmp/a"}, step="n")]
    used.append(covers(wider, "delete", {"path": "/tmp/a"}, used, step="o"))
    assert used == ["d", "o"]
    assert covers(wider, "delete", {"path": "/tmp/a"}, used, step="n") is None
    assert covers(wider, "delete", {"path": "/"}, used, step="s") == "s"
    assert outside(revised, wider, FACTS) == []


def test_a_step_that_is_revised_after_its_call_was_made_gets_a_new_entry():
    grant = grant_of(plan(calls("m", "send", to="bob", body="hi")), FACTS)
    again = plan(calls("m", "send", to="bob", body="hi"))
    assert [call["step"] for call in outside(again, grant, FACTS, ["m"])] == ["m"]
    wider = extended(grant, again, FACTS, ["m"])
    key = covers(wider, "send", {"to": "bob", "body": "hi"}, ["m"], step="m")
    assert key not in (None, "m")
    assert covers(wider, "send", {"to": "bob", "body": "hi"}, ["m", key or ""], step="m") is None


# ---- whatever is planned

scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.text("ab5${}.\ue000", max_size=6)
values = st.recursive(
    scalars | st.sampled_from(["${s1.result}", "x${s1.result.a}y${s2.b}", "$${s1}"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(["to", "body", "cc", "n"]), values, max_size=4)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    if isinstance(value, (dict, list)) and value:
        inner = value.items() if isinstance(value, dict) else enumerate(value)
        return [leaf for key, item in inner for leaf in leaves(item, (*path, key))]
    return [(path, value)]


@given(arguments, st.data())
def test_a_write_with_a_changed_fixed_argument_is_never_covered(given_arguments: dict[str, Any], data: st.DataObject):
    grant = grant_of(plan(calls("w", "send", **given_arguments)), FACTS)
    fixed = [
        (path, value)
        for path, value in leaves(given_arguments)
        if path and not (isinstance(value, str) and "$" in value) and not (value is None and len(path) == 1)
    ]
    call = copy.deepcopy(given_arguments)
    if fixed and data.draw(st.booleans()):
        path, value = data.draw(st.sampled_from(fixed))
        other = data.draw(values.filter(lambda other: same_call("", other) != same_call("", value)))
        place: Any = call
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = other
    else:
        call[data.draw(st.sampled_from(["bcc", "force"]))] = data.draw(values)
    assert covers(grant, "send", call) is None
    assert covers(grant, "send", call, step="w") is None
    assert difference(grant, "send", call)


@given(arguments)
def test_the_call_as_planned_is_covered_once_its_open_parts_are_filled(given_arguments: dict[str, Any]):
    steps = plan(calls("w", "send", **given_arguments))
    grant = grant_of(steps, FACTS)

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: filled(item) for name, item in value.items()}
        if isinstance(value, list):
            return [filled(item) for item in value]
        if isinstance(value, str):
            for reference in ("${s1.result.a}", "${s1.result}", "${s2.b}"):
                value = value.replace(reference, "VALUE") if f"${reference}" not in value else value
            return value.replace("$${", "${")
        return value

    assert covers(grant, "send", filled(given_arguments)) == "w"
    assert outside(steps, grant, FACTS) == []
    assert extended(grant, steps, FACTS) == grant


@given(st.lists(arguments, max_size=3), st.lists(arguments, max_size=3), st.data())
def test_a_revision_without_anything_outside_permits_nothing_new(
    old: list[dict[str, Any]], new: list[dict[str, Any]], data: st.DataObject
):
    grant = grant_of(plan(*(calls(f"a{n}", "send", **given) for n, given in enumerate(old))), FACTS)
    revised = plan(*(calls(f"b{n}", "send", **given) for n, given in enumerate(new)))
    if not outside(revised, grant, FACTS):
        assert extended(grant, revised, FACTS) == grant
    call = data.draw(st.sampled_from([*old, *new, {}]))
    if covers(grant, "send", call) is not None:
        assert covers(extended(grant, revised, FACTS), "send", call) is not None


def test_entries_are_plain_values():
    assert grant_of(plan(calls("m", "send", to="bob")), FACTS).entries == (
        GrantEntry("m", "m", "send", {"to": "bob", "body": None}, once=True),
    )
