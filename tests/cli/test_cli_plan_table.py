"""What a person is shown of a plan."""

from replan.cli.plan_table import LEGEND, plan_lines, plan_notes, plan_rows

STEPS = [
    {"id": "p", "description": "Find\nBob \x1b[31m", "call": {"tool": "find", "arguments": {"name": "Bob"}}},
    {"id": "w", "description": "The most", "compute": {"max": ["${p.result}"]}, "depends_on": []},
    {
        "id": "m",
        "description": "Mail",
        "call": {
            "tool": "send",
            "arguments": {"to": "${p.result.mail}", "body": None, "cc": ["eve"], "odd name": 1, "level": "high"},
        },
    },
    {"id": "f", "description": "Fill in", "call": {"tool": "send", "arguments": None}},
    {"id": "o", "description": "Look around", "suggested_tools": ["find", "send"]},
    {"id": "t", "description": "Think"},
]
ORIGINS = {"m": {"to": "output", "cc[0]": "model", '["odd name"]': "model", "level": "schema"}}


def test_every_kind_of_step_has_its_row():
    rows = plan_rows({"plan": {"steps": STEPS}, "origins": ORIGINS})
    assert [(row.id, row.kind, row.description, row.needs) for row in rows] == [
        ("p", "direct", "Find Bob", ()),
        ("w", "compute", "The most", ("p",)),
        ("m", "bound", "Mail", ("p",)),
        ("f", "bound", "Fill in", ("m",)),
        ("o", "open", "Look around", ("f",)),
        ("t", "open", "Think", ("o",)),
    ]
    assert [("".join(text for text, _ in row.action)) for row in rows] == [
        'find(name="Bob")',
        'compute {"max":["${p.result}"]}',
        'send(to="${p.result.mail}", body=..., cc=["eve"]?!, odd name=1?!, level="high")',
        "send(...)",
        "with find, send",
        "",
    ]
    assert [style for _, style in rows[2].action].count("guess") == 2


def test_what_there_is_to_say_of_a_plan_is_said():
    body = {
        "plan": {"steps": STEPS},
        "reason": "it failed",
        "outside": [{"step": "m", "tool": "send", "arguments": {"to": "x"}, "why": "`to` is 'x', the plan has 'y'"}],
        "findings": [
            {"step": "m", "kind": "ungrounded", "text": "step 'm': cc = 1 is new", "mended": False},
            {"step": "p", "kind": "order", "text": "was moved", "mended": True},
            {"step": None, "kind": "note", "text": "long"},
        ],
        "price": {
            "model_calls": [1, 2],
            "tool_calls": [3, 3],
            "input_tokens": [10, 10],
            "output_tokens": [1, 1],
            "seconds": [1, 1],
            "cost": None,
            "exceeds": ["too many calls"],
        },
        "origins": ORIGINS,
    }
    assert list(plan_notes(body)) == [
        "why: it failed",
        "not accepted so far: send(to=\"x\") in step m: `to` is 'x', the plan has 'y'",
        "ungrounded: step 'm': cc = 1 is new",
        "order: step p: was moved (mended)",
        "note: long",
        "price: 1-2 model calls, 3 tool calls, ~11 tokens, about 1 s",
        "price: too many calls",
        LEGEND,
    ]
    assert list(plan_lines({"plan": {"steps": STEPS[:1]}})) == ["p  direct  Find Bob", '    find(name="Bob")']


def test_a_plan_that_a_person_wrote_can_be_shown():
    steps = ["look", {"description": "Look"}, {"id": "b", "description": "x", "call": "send"}]
    rows = plan_rows({"plan": {"steps": steps}})
    assert [row.description for row in rows] == ['"look"', "Look", "x"]


def test_a_long_value_is_clipped_where_it_is_shown():
    steps = [{"id": "m", "description": "x", "call": {"tool": "send", "arguments": {"body": "y" * 5000}}}]
    [row] = plan_rows({"plan": {"steps": steps}})
    assert row.action[2][0].endswith("…")
    assert len(row.action[2][0]) == 500
