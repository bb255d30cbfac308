import contextlib
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replan.planning.references import (
    MissingReference,
    malformed_references,
    parse_path,
    pick,
    reference_paths,
    references,
    render,
    replace_references,
    resolve,
    whole_reference,
    write_path,
)

OUTPUTS: dict[str, Any] = {
    "s1": {"result": {"name": "Ann", "age": 42, "odd key": 1, "nothing": None, "yes": True}},
    "s2": {"result": [{"id": "a", "tags": ["x", "y"]}, {"id": "b", "tags": []}]},
    "s3": {"result": "plain text"},
    "s4": {"summary": "done", "calls": [1, 2.5]},
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${s1.result.name}", "Ann"),
        ("${s1.name}", "Ann"),
        ("${s1.age}", 42),
        ("${s1.yes}", True),
        ("${s1.nothing}", None),
        ('${s1["odd key"]}', 1),
        ('${s1["result"].age}', 42),
        ("${s1}", OUTPUTS["s1"]["result"]),
        ("${s1.result}", OUTPUTS["s1"]["result"]),
        ("${s2[0].id}", "a"),
        ("${s2.result[-1].id}", "b"),
        ("${s2[*].id}", ["a", "b"]),
        ("${s2.result[*].tags[*]}", [["x", "y"], []]),
        ("${s3}", "plain text"),
        ("${s3.result}", "plain text"),
        ("${s4.calls[1]}", 2.5),
        ("${s4}", OUTPUTS["s4"]),
    ],
)
def test_a_reference_alone_keeps_the_type_of_its_value(text: str, value: Any):
    assert resolve(text, OUTPUTS) == value
    assert type(resolve(text, OUTPUTS)) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Dear ${s1.name} (${s1.age})", "Dear Ann (42)"),
        ("${s1.yes}, ${s1.nothing}, ${s2[0].tags}", 'true, null, ["x","y"]'),
        ("$${s1.name}", "${s1.name}"),
        ("$${", "${"),
        ("a $${b} ${s1.name}", "a ${b} Ann"),
        ("costs $5 {really} ${HOME} ${", "costs $5 {really} ${HOME} ${"),
        ("${other thing}", "${other thing}"),
        ("", ""),
    ],
)
def test_references_inside_a_text_are_written_into_it(text: str, value: str):
    assert resolve(text, OUTPUTS) == value


def test_references_are_replaced_wherever_they_stand():
    value = {"a": ["${s1.name}", {"b": "x ${s1.age}"}], "n": 5, "none": None}
    assert resolve(value, OUTPUTS) == {"a": ["Ann", {"b": "x 42"}], "n": 5, "none": None}
    assert list(references(value)) == ["s1", "s1"]
    assert list(references("${s2} $${s1} ${s1.x} ${S9}")) == ["s2", "s1"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("${s9.x}", "the step 's9' has no output; there are 's1', 's2', 's3', 's4'"),
        ("${s1.nam}", "there is no 'nam'; there are 'name', 'age', 'odd key', 'nothing', 'yes'"),
        ("${s1.name.first}", "there is no 'first': the value is a text"),
        ("${s1.nothing.x}", "the value is null"),
        ("${s1.yes.x}", "the value is a boolean"),
        ("${s1.age.x}", "the value is a number"),
        ("${s2[2].id}", "there is no [2]: the list has 2 elements"),
        ("${s2[-3].id}", "the list has 2 elements"),
        ("${s2.id}", "the value is a list"),
        ("${s1[0]}", "the value is an object"),
        ("${s1[*]}", "[*] needs a list, and there is an object"),
        ("${s4.result}", "there is no 'result'; there are 'summary', 'calls'"),
        ("${s1.result['name']}", "is not a reference; write it like ${s1.result.items[0].id}"),
        ("Hi ${s1.first name}!", "'${s1.first name}' is not a reference"),
    ],
)
def test_a_reference_that_leads_nowhere_says_what_there_is(text: str, words: str):
    with pytest.raises(MissingReference) as caught:
        resolve({"a": [text]}, OUTPUTS)
    assert words in str(caught.value)


def test_many_names_are_listed_only_in_part():
    with pytest.raises(MissingReference) as caught:
        resolve("${s1.x}", {"s1": {"a": {f"k{n}": n for n in range(1000)}, "b": 1}})
    assert "there are 'a', 'b'" in str(caught.value)
    with pytest.raises(MissingReference) as caught:
        pick({f"k{n}": n for n in range(1000)}, "x")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("path", ["a..b", "a[", "[x]", "a]"])
def test_what_is_no_path_is_refused(path: str):
    with pytest.raises(ValueError, match=r"is not a path; write it like name\.items\[0\]\.id"):
        pick({"a": [1]}, path)


def test_a_path_may_leave_out_its_first_dot():
    assert pick({"a": {"b": [5]}}, "a.b[0]") == pick({"a": {"b": [5]}}, ".a.b[0]") == 5
    assert pick({"a": 1}, "") == {"a": 1}


keys = st.text(min_size=1, max_size=6) | st.text(string.ascii_lowercase, min_size=1, max_size=4)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, min_size=1, max_size=3) | st.dictionaries(keys, inner, min_size=1, max_size=3),
    max_leaves=10,
)


@given(value=values, data=st.data())
def test_every_part_of_a_value_can_be_referred_to(value: Any, data: st.DataObject):
    path, inner = "", value
    while isinstance(inner, (list, dict)) and data.draw(st.booleans()):
        if isinstance(inner, list):
            index = data.draw(st.integers(-len(inner), len(inner) - 1))
            path, inner = f"{path}[{index}]", inner[index]
        else:
            key = data.draw(st.sampled_from(sorted(inner)))
            simple = key.isascii() and key.isalnum()
            path, inner = (f"{path}.{key}" if simple else f"{path}[{json.dumps(key)}]"), inner[key]
    assert pick(value, path) == inner
    assert resolve(f"${{s1.out{path}}}", {"s1": {"out": value, "more": 1}}) == inner


@given(st.text(alphabet="${}s1.[]*\"' a", max_size=30))
def test_no_text_raises_anything_else(text: str):
    with contextlib.suppress(MissingReference):
        resolve(text, OUTPUTS)


def test_references_are_told_with_their_paths():
    value = {"max": ["${a.result[0].x}", 'and ${b}, ${c["odd key"].y}'], "by": "$${d.e}"}
    assert list(reference_paths(value)) == [("a", ".result[0].x"), ("b", ""), ("c", '["odd key"].y')]
    assert list(malformed_references(["${s1.first name}", "${s1}", "$${s1 x}"])) == [("s1", "${s1.first name}")]
    assert whole_reference("${a.b[*]}") == ("a", ".b[*]")
    assert [whole_reference(v) for v in ("a ${a.b}", "$${a}", "a", 5, None)] == [None] * 5


def test_references_can_be_given_another_text():
    value = {"to": ["${a.x} and ${b.x}"], "text": "$${a.x} ${a.first name}", "n": 1}
    changed = replace_references(value, lambda ident, path: f"${{c{path}}}" if ident == "a" else None)
    assert changed == {"to": ["${c.x} and ${b.x}"], "text": "$${a.x} ${a.first name}", "n": 1}


def test_a_path_into_a_text_that_holds_json_reads_that_json():
    outputs = {"s1": {"result": '{"rows": [{"id": 7}], "inner": "[1, 2]"}'}, "s2": {"result": " [5]"}}
    assert resolve("${s1.result.rows[*].id}", outputs) == [7]
    assert resolve("${s1.inner[1]}", outputs) == 2
    assert resolve("${s2[0]}", outputs) == 5
    assert resolve("${s1.result}", outputs) == outputs["s1"]["result"]
    for text in ("{broken", "5", '"text"'):
        with pytest.raises(MissingReference, match="the value is a text"):
            resolve("${s1.x}", {"s1": {"result": text}})


@given(st.lists(keys | st.integers(-3, 3) | st.none(), max_size=5))
def test_a_path_is_written_as_it_is_read(parts: list[Any]):
    assert parse_path(write_path(parts)) == parts


def test_a_description_may_hold_what_only_looks_like_a_reference():
    assert render("Use ${HOME}, ${x.y} and ${s1.name}; $${s1.age}", OUTPUTS) == "Use ${HOME}, ${x.y} and Ann; ${s1.age}"
    assert render("${s1.age}", OUTPUTS) == "42"
    assert render("${nothing}", {}) == "${nothing}"
    with pytest.raises(MissingReference):
        render("${s1.nope}", OUTPUTS)
