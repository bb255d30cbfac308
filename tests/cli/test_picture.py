import time
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replan import events
from replan.cli.picture import cells, clipped, draw, label, picture_json, wrapped
from replan.cli.picture_mermaid import mermaid
from replan.cli.picture_svg import svg
from replan.cli.picture_text import diagram, listing, painted

HOSTILE = [
    "<script>alert(1)</script>",
    "]]>",
    "\x00\x1b[31mred\x07\x9b1m",
    "\u202egnp.exe\u2066\u200f",
    "שלום עולם",
    'a "quoted" `tick` #35; &lt; ; %% c %%{init: {"theme": "dark"}}%%',
    "x" * 10_000,
    "wörd " * 2_000,
    "line\nline\r\nline\u2028line",
    '"]; click n1 "javascript:alert(1)"; n1["',
    "\ufffe\uffff\ud800",
    "",
    "東京の天気を調べる" * 20,
    "🙂" * 50,
    "e\u0301" * 50,
    "end",
    "</text></svg>",
]


DIAGRAM = """\
┏━━━━━━━━━━━━━━━━━━━━━━━━┓  ┌────────────────────────┐
┃ [x] a                  ┃  │ [.] b                  │
┃ Oslo                   ┃  │ Lisbon                 │
┃                        ┃  │                        │
┃ done, 2.0 s, open      ┃  │ running, open          │
┗━━━━━━━━━━━━━━━━━━━━━━━━┛  └────────────────────────┘
             ┗━━━━━━┓            ┌───────┘
                    ▼            ▼
              ┏━━━━━━━━━━━━━━━━━━━━━━━━┓
              ┃ [ ] w                  ┃
              ┃ Warmest                ┃
              ┃                        ┃
              ┃ planned, open          ┃
              ┗━━━━━━━━━━━━━━━━━━━━━━━━┛
"""


def step(ident, description=None, needs=None, **more):
    depends = {} if needs is None else {"depends_on": needs}
    return {"id": ident, "description": description or f"Do {ident}", **depends, **more}


def made(*steps, revision=0):
    return events.PlanCreated(run_id="r", plan={"steps": list(steps), "revision": revision})


def revised(*steps):
    return events.PlanRevised(run_id="r", plan={"steps": list(steps), "revision": 1}, reason="x")


def start(ident, kind="open"):
    return events.StepStart(run_id="r", step_id=ident, index=0, description=ident, kind=kind)


def end(ident, seconds=1.0, *, ok=True, blocked=False):
    return events.StepComplete(run_id="r", step_id=ident, summary="", ok=ok, blocked=blocked, seconds=seconds)


def states(picture):
    return {ident: node.state for ident, node in picture.nodes.items()}


def text(lines):
    return ["".join(character for character, _ in line).rstrip() for line in lines]


WEATHER = [
    made(
        step("a", "Oslo", [], call={"tool": "w", "arguments": {"city": "Oslo"}}),
        step("b", "Lisbon", [], call={"tool": "w", "arguments": {"city": "Lisbon"}}),
        step("w", "Take the warmest", compute={"max": ["${a.result.t}", "${b.result.t}"]}),
        step("p", "Find Bob", [], call={"tool": "find", "arguments": {"name": None}}),
        step("m", "Mail Bob", call={"tool": "send", "arguments": {"to": "${p.result}", "body": "${w.result}"}}),
        step("x", "File it"),
    ),
    *(start(ident, "direct") for ident in ("a", "b", "p")),
    end("a", 2.0),
    end("b", 1.0),
    end("p", 0.5, ok=False),
    revised(step("r", "Ask elsewhere", ["a"]), step("m2", "Mail Bob", ["r", "w"])),
    start("w", "compute"),
    end("w", 0.0),
    start("r"),
]


# ---- the model


def test_states_kinds_and_edges_are_those_of_all_revisions():
    picture = draw(WEATHER)
    assert states(picture) == {
        "a": "done",
        "b": "done",
        "w": "done",
        "p": "failed",
        "m": "replaced",
        "x": "replaced",
        "r": "running",
        "m2": "planned",
    }
    assert picture.needs == {
        "a": (),
        "b": (),
        "w": ("a", "b"),
        "p": (),
        "m": ("p", "w"),
        "x": ("m",),
        "r": ("a",),
        "m2": ("r", "w"),
    }
    assert [picture.nodes[ident].kind for ident in ("a", "w", "p", "m", "x")] == [
        "direct",
        "compute",
        "direct",
        "direct",
        "open",
    ]
    assert [picture.nodes[ident].revision for ident in ("a", "m2")] == [0, 1]


def test_what_is_left_when_a_run_ends_was_not_run_and_what_ran_was_cancelled():
    told = [made(step("a", needs=[]), step("b"), step("c")), start("a"), end("a", blocked=True), start("b")]
    assert states(draw(told)) == {"a": "blocked", "b": "running", "c": "planned"}
    assert states(draw(told, "cancelled")) == {"a": "blocked", "b": "cancelled", "c": "not run"}
    assert states(draw(told, "interrupted")) == {"a": "blocked", "b": "interrupted", "c": "planned"}


def test_steps_begin_when_the_ones_before_have_ended():
    told = [made(step("a", needs=[]), step("b", needs=[]), step("c", needs=["a"])), start("a"), start("b")]
    told += [end("b", 1.0), start("c"), end("a", 3.0), end("c", 0.5)]
    picture = draw(told)
    assert [(picture.nodes[ident].start, picture.nodes[ident].seconds) for ident in "abc"] == [
        (0.0, 3.0),
        (0.0, 1.0),
        (1.0, 0.5),
    ]


def test_a_plan_that_a_resume_tells_again_changes_nothing():
    told = [WEATHER[0], start("a"), WEATHER[0], end("a", 2.0)]
    assert draw(told) == draw([WEATHER[0], start("a"), end("a", 2.0)])


def test_the_longest_chain_counts_measured_seconds_and_guesses_the_rest_from_steps_of_the_kind():
    told = [made(step("a", needs=[]), step("b", needs=[]), step("c", needs=["b"]), step("d", needs=["a", "c"]))]
    picture = draw([*told, start("a"), start("b"), end("b", 1.0), start("c"), end("c", 1.5), end("a", 2.0), start("d")])
    assert (picture.critical, picture.seconds, picture.estimated) == (("b", "c", "d"), 4.0, True)  # d: the median
    assert picture.is_critical("c", "d")
    assert not picture.is_critical("a", "d")
    picture = draw([*told, start("a"), end("a", 9.0), *(end(ident, 1.0) for ident in "bcd")])
    assert (picture.critical, picture.seconds, picture.estimated) == (("a", "d"), 10.0, False)
    assert label(picture) == "longest chain: a, d (10 s)"


def test_replaced_steps_are_in_no_chain_and_a_chain_of_one_is_not_told():
    assert not {"m", "x"} & set(draw(WEATHER).critical)
    assert label(draw([made(step("a"))])) == ""


def test_plans_that_go_round_in_a_circle_and_odd_plans_are_drawn():
    picture = draw([made(step("a", needs=["c"]), step("b", needs=["a"]), step("c", needs=["b"]))])
    assert picture.needs == {"a": (), "b": ("a",), "c": ("b",)}
    picture = draw([events.PlanCreated(run_id="r", plan={"steps": [{"id": "a", "description": 7}]}), end("z")])
    assert states(picture) == {"a": "planned", "z": "done"}
    assert states(draw([])) == {}


def test_the_json_of_a_picture_has_nodes_edges_and_the_chain():
    data = picture_json(draw([made(step("a", needs=[]), step("b")), start("a"), end("a", 1.0)]))
    assert data["edges"] == [["a", "b"]]
    assert data["nodes"][0] == {
        "id": "a",
        "description": "Do a",
        "kind": "open",
        "state": "done",
        "start": 0.0,
        "seconds": 1.0,
        "revision": 0,
    }
    assert (data["critical"], data["critical_seconds"], data["critical_estimated"]) == (["a", "b"], 2.0, True)


# ---- texts


@given(st.text(), st.integers(1, 40))
def test_clipped_and_wrapped_texts_are_no_wider_than_asked(given_text, width):
    assert cells(clipped(given_text, width)) <= width
    lines = wrapped(given_text, width)
    assert 1 <= len(lines) <= 2
    assert all(cells(line) <= width for line in lines)


def test_texts_are_wrapped_between_words_and_say_that_they_go_on():
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("one two three four", 7) == ["one two", "three…"]
    assert wrapped("東京の天気", 7) == ["東京の…"]


# ---- terminal


def test_the_diagram_shows_boxes_states_and_lines():
    told = [made(step("a", "Oslo", []), step("b", "Lisbon", []), step("w", "Warmest", ["a", "b"]))]
    drawn = diagram(draw([*told, start("a"), end("a", 2.0), start("b")]), 60)
    assert text(drawn) == DIAGRAM.splitlines()


def test_long_edges_go_past_the_boxes_between_and_nothing_lies_on_a_box():
    drawn = diagram(draw(WEATHER), 130)
    assert max(sum(cells(character) for character, _ in line) for line in drawn) <= 130
    joined = "\n".join(text(drawn))
    for ident, state in states(draw(WEATHER)).items():
        assert f"] {ident} " in joined
        assert state in joined
    assert joined.count("▼") == 8
    assert "┏" in joined


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(30, 160))
def test_what_is_drawn_has_all_boxes_whole_and_all_tips_and_fits(data, width):
    size = data.draw(st.integers(1, 10))
    steps = [
        step(f"s{n}", needs=[f"s{m}" for m in data.draw(st.sets(st.integers(0, n - 1), max_size=3))] if n else [])
        for n in range(size)
    ]
    picture = draw([made(*steps)])
    drawn = diagram(picture, width)
    if drawn is None:
        return
    assert max(map(len, drawn)) <= width
    joined = "\n".join(text(drawn))
    edges = sum(map(len, picture.needs.values()))
    assert joined.count("planned, open") == size
    assert joined.count("▼") == edges
    assert joined.count("[ ] s") == size


def test_wide_characters_keep_the_frame():
    drawn = diagram(draw([made(step("a", "東京の天気を調べる 東京の天気を調べる 東京"), step("b", "🙂" * 30))]), 40)
    assert {cells(line) for line in text(drawn) if line.startswith("┃")} == {38}


def test_what_does_not_fit_is_not_drawn():
    assert diagram(draw(WEATHER), 20) is None
    assert diagram(draw([]), 80) is None
    assert diagram(draw([made(*(step(f"s{n}") for n in range(61)))]), 80) is None


def test_the_list_tells_states_in_words_and_what_is_waited_for():
    assert list(listing(draw(WEATHER))) == [
        "* [x] a: Oslo (done, 2.0 s, direct)",
        "  [x] b: Lisbon (done, 1.0 s, direct)",
        "  [!] p: Find Bob (failed, 0.5 s, direct)",
        "    [x] w: Take the warmest (done, 0.0 s, compute)  <- a, b",
        "*   [.] r: Ask elsewhere (running, open)  <- a",
        "      [~] m: Mail Bob (replaced, direct)  <- p, w",
        "*     [ ] m2: Mail Bob (planned, open)  <- r, w",
        "        [~] x: File it (replaced, open)  <- m",
        "* longest chain: a, r, m2 (32 s, estimated where not run)",
    ]


def test_colours_are_added_only_where_they_are_wanted():
    lines = [[("a", "bold green"), ("b", "bold green"), (" ", ""), ("c", "dim")]]
    assert painted(lines, colours=True) == "\x1b[1;32mab\x1b[0m \x1b[2mc\x1b[0m\n"
    assert painted(lines, colours=False) == "ab c\n"


# ---- Mermaid and SVG


def test_mermaid_has_nodes_edges_and_classes():
    assert mermaid(draw(WEATHER), "Plan of run r") == (
        "flowchart TD\n"
        "    accTitle: Plan of run r\n"
        "    accDescr: longest chain: a, r, m2 (32 s, estimated where not run)\n"
        '    n1["a: Oslo<br/>done, 2.0 s, direct"]\n'
        '    n2["b: Lisbon<br/>done, 1.0 s, direct"]\n'
        '    n3["w: Take the warmest<br/>done, 0.0 s, compute"]\n'
        '    n4["p: Find Bob<br/>failed, 0.5 s, direct"]\n'
        '    n5["m: Mail Bob<br/>replaced, direct"]\n'
        '    n6["x: File it<br/>replaced, open"]\n'
        '    n7["r: Ask elsewhere<br/>running, open"]\n'
        '    n8["m2: Mail Bob<br/>planned, open"]\n'
        "    n1 --> n3\n"
        "    n2 --> n3\n"
        "    n4 -.-> n5\n"
        "    n3 -.-> n5\n"
        "    n5 -.-> n6\n"
        "    n1 ==> n7\n"
        "    n7 ==> n8\n"
        "    n3 --> n8\n"
        "    classDef is_planned fill:#f6f8fa,stroke:#8c959f,color:#1f2328\n"
        "    class n8 is_planned\n"
        "    classDef is_running fill:#ddf4ff,stroke:#0969da,color:#0a3069\n"
        "    class n7 is_running\n"
        "    classDef is_done fill:#dafbe1,stroke:#1a7f37,color:#0f3d1e\n"
        "    class n1,n2,n3 is_done\n"
        "    classDef is_failed fill:#ffebe9,stroke:#cf222e,color:#6e1018\n"
        "    class n4 is_failed\n"
        "    classDef is_replaced fill:#ffffff,stroke:#8c959f,color:#57606a,stroke-dasharray:4 3\n"
        "    class n5,n6 is_replaced\n"
        "    classDef is_critical stroke-width:3px\n"
        "    class n1,n7,n8 is_critical\n"
    )


@pytest.mark.parametrize("description", HOSTILE, ids=range(len(HOSTILE)))
def test_mermaid_keeps_any_text_inside_its_quotes(description):
    lines = mermaid(draw([made(step("a", description))]), description).splitlines()
    assert lines[0] == "flowchart TD"
    assert lines[1].startswith("    accTitle: ")
    assert lines[1] != "    accTitle: "
    [node] = [line for line in lines if line.startswith("    n1[")]
    inside = node.removeprefix('    n1["').removesuffix('<br/>planned, open"]')
    assert len(inside) < len(node)
    for line in (inside, lines[1]):
        assert not set(line) & set('"<>`%{}[]|\\\x1b\x9b\u202e\u2066\u2028\n')
    assert len(lines) == 5


@pytest.mark.parametrize("description", HOSTILE, ids=range(len(HOSTILE)))
def test_svg_is_well_formed_and_holds_any_text_as_text(description):
    document = svg(draw([made(step("a", description), step("b"))]), description)
    root = ET.fromstring(document)
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags == {"svg", "title", "desc", "style", "rect", "clipPath", "text", "path", "g"}
    assert not any(name.startswith("on") or "href" in name for element in root.iter() for name in element.attrib)
    assert not set(document) & set("\x00\x1b\x9b\u202e\u2066")
    assert len(document) < 20_000


def test_svg_tells_the_plan_to_those_who_do_not_see_it():
    root = ET.fromstring(svg(draw(WEATHER), "Plan of run r"))
    space = {"s": "http://www.w3.org/2000/svg"}
    assert root.attrib["role"] == "img"
    assert root.attrib["aria-labelledby"] == "title desc"
    assert root.find("s:title", space).text == "Plan of run r"
    told = root.find("s:desc", space).text
    assert told.startswith("8 steps. a: Oslo (done, 2.0 s, direct). b: Lisbon")
    assert "w: Take the warmest (done, 0.0 s, compute, after a, b)." in told
    assert "prefers-color-scheme: dark" in root.find("s:style", space).text
    groups = root.findall("s:g", space)
    assert [group.attrib["class"] for group in groups][:2] == ["done critical", "done"]
    assert len(root.findall("s:path", space)) == 2 * 8
    assert all("replaced" in "".join(group.itertext()) for group in groups if group.attrib["class"] == "replaced")


@pytest.mark.parametrize(
    "needs",
    [
        lambda n: [f"s{n - 1}"] if n else [],
        lambda n: [],
        lambda n: ["s0"] if n else [],
        lambda n: sorted({f"s{n - 1}", "s0"}) if n > 1 else [],
        lambda n: [f"s{m}" for m in range(max(0, n - 40), n)],
    ],
    ids=["chain", "flat", "fan", "chain-and-fan", "dense"],
)
def test_two_thousand_steps_are_drawn_at_once(needs):
    began = time.process_time()
    picture = draw([made(*(step(f"s{n}", needs=needs(n)) for n in range(2000)))])
    ET.fromstring(svg(picture))
    assert mermaid(picture).count("planned, open") == 2000
    assert len(list(listing(picture))) >= 2000
    assert diagram(picture, 200) is None
    assert time.process_time() - began < 10
