import json
import math
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replan.planning.compute import OPERATORS, ComputeError, compute, open_operand, problems
from replan.planning.references import MissingReference

CITIES = [{"name": "Norvik", "pop": 61, "tags": ["sea"]}, {"name": "Oslo", "pop": 40}, {"name": "Tarn", "pop": 61}]
OUTPUTS: dict[str, Any] = {
    "stove": {"result": {"name": "Cinder II", "kg": 1.24, "price": 83.45, "none": None, "text": "12 kg"}},
    "bag": {"result": {"name": "Fjell backpack", "kg": 1.97, "price": "0.1", "text": "1,184.70"}},
    "tent": {"result": {"name": "Tarn tent", "kg": 3.85, "price": 0.2, "text": "plain"}},
    "cities": {"result": CITIES},
    "wrapped": {"result": {"items": CITIES, "total": 3}},
    "json_text": {"result": json.dumps(CITIES)},
    "three": {"result": [3, 1, 2.0]},
    "empty": {"result": []},
    "total": {"result": 5, "text": "sum = 5"},
    "evil": {"result": "1) + __import__('os').getpid() + (1"},
}


def value_of(expression: str) -> Any:
    return compute({"value": expression}, OUTPUTS)["result"]


def error_of(spec: dict[str, Any]) -> str:
    with pytest.raises(ComputeError) as caught:
        compute(spec, OUTPUTS)
    return str(caught.value)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1 + 0.2", 0.3),
        ("${stove.price} * 2", 166.9),
        ("${stove.result.price} * 2", 166.9),
        ("${bag.price} + ${tent.price}", 0.3),  # a text that is exactly a number counts as one
        ("2 + 3 * 4 - -1", 15),
        ("(2 + 3) * 4", 20),
        ("6 / 3", 2),
        ("1 / 3", 1 / 3),
        ("7 // 2", 3),
        ("-7 // 2", -4),
        ("-7 % 3", 2),
        ("7 % -3", -2),
        ("2 ** 10", 1024),
        ("2 ** 0.5", 2**0.5),
        ("1.1 ** 2", 1.21),
        ("2 ** 63", 2**63),
        ("15%", 0.15),
        ("200 * 15%", 30),
        ("100 / 50%", 200),
        ("-50% ** 2", -0.25),
        ("(10 + 5)% * 200", 30),
        ("${three[0]}% * 100", 3),
        ("15% + 1", 1.15),
        ("15 % 4", 3),
        ("15%4", 3),
        ("10 % -4", -2),
        ("round(2.5)", 3),
        ("round(-2.5)", -3),
        ("round(2.675, 2)", 2.68),
        ("round(1184.7, -2)", 1200),
        ("abs(-3) + len(${cities}) + len('four')", 10),
        ("min(${three}) + max(${three}, 9) + sum(${three}, [1, 2])", 19),
        ("average(${cities[*].pop})", 54),
        ("max('2026-01-02', '2026-03-01')", "2026-03-01"),
        ("1 < 2 <= 2 < 3 and not 4 > 5", True),
        ("${stove.kg} >= 2 or ${tent.kg} > 3", True),
        ("${stove.name} == 'Cinder II'", True),
        ("'${stove.name}' != \"Tarn tent\"", True),
        ("${bag.price} == 0.10", True),
        ("'007' == '7'", False),
        ("true and false", False),
        ("${total} * 2", 10),
        ("${total.result} * 2", 10),
        ("${stove.name}", "Cinder II"),
        ("${cities[*].pop}", [61, 40, 61]),
        ("${cities[0]}", CITIES[0]),
        (" 1\n + 2", 3),
    ],
)
def test_expression_gives_its_exact_value(expression: str, value: Any) -> None:
    assert problems({"value": expression}) == []
    result = value_of(expression)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("${stove.text} * 2", "${stove.text} is the text '12 kg', not a number"),
        ("${bag.text} + 1", "'1,184.70', not a number; a text must be exactly a number"),
        ("${stove.none} + 1", "${stove.none} is null"),
        ("${stove} + 1", "refer to one of its fields: 'name', 'kg'"),
        ("${cities} + 1", "${cities} is the list"),
        ("(1 < 2) + 1", "1 < 2 is the boolean true, not a number"),
        ("1 and 2 < 3", "1 is the number 1, not true or false"),
        ("1 / 0", "division by zero"),
        ("0 / (1 - 1)", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0 ** 0", "no such number"),
        ("(-8) ** 0.5", "no such number"),
        ("9 ** 9 ** 9", "too large"),
        ("1e300 * 1e300", "too large"),
        ("1e999", "not a finite number"),
        ("max(${empty})", "no values"),
        ("max('b', 3)", "value 1 of max('b', 3) is the text 'b'"),
        ("'b' < 3", "'b' is the text 'b', not a number"),
        ("'12 kg' < '9 kg'", "not a number"),
        ("${stove.none}", "null"),
        ("round(1, 2, 3)", "round takes"),
        ("abs(1, 2)", "abs takes"),
        ("len(5)", "len takes"),
        ("${evil} + 1", "__import__"),
    ],
)
def test_what_cannot_be_computed_is_named(expression: str, words: str) -> None:
    assert words in error_of({"value": expression})


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("stove.kg + 1", "write references like ${stove.kg}"),
        ("stove + 1", "write references like ${stove.result}"),
        ("${stove.kg + 1", "'$' cannot stand"),
        ("${Stove.kg} + 1", "is not a reference"),
        ("1,184.70 + 2", "without separators"),
        ("12kg", "'12kg'"),
        ("12 kg", "not an expression"),
        ("1if 2 else 3", "'1if'"),
        ("1e-3and 2", "'1e-3and'"),
        ("0x10", "'0x10'"),
        ("1 = 2", "not an expression"),
        ("avg(1)", "there is no function 'avg'; there are min, max"),
        ("max(1, key=abs)", "cannot be part"),
        ("max(*[1])", "cannot be part"),
        ("1 in [1]", "no comparison"),
        ("1 if 2 else 3", "cannot be part"),
        ("[1][0]", "cannot be part"),
        ("2 << 3", "none of the operators"),
        ("2 ^ 3", "'^' cannot stand"),
        ("None", "cannot be part"),
        ("f'x'", "not an expression"),
        ("__import__('os').getpid()", "cannot be part"),
        ("r.r", "not known"),
        ("", "not an expression"),
        ("+".join("1" * 1500), "more than 2000"),
        ("+".join("1" * 500), "nested too deeply"),
        ("-" * 1900 + "1", "nested too deeply"),
    ],
)
def test_malformed_expression_is_a_problem_before_anything_runs(expression: str, words: str) -> None:
    (problem,) = problems({"value": expression})
    assert words in problem
    assert error_of({"value": expression}) == problem


def test_text_of_an_output_is_never_part_of_the_expression() -> None:
    assert value_of("${evil}") == OUTPUTS["evil"]["result"]
    assert value_of("'${evil}' == 'x'") is False


def test_line_has_the_values_in_place_of_the_references() -> None:
    assert compute({"value": "${stove.price} * 2"}, OUTPUTS)["text"] == "83.45 * 2 = 166.9"
    assert compute({"value": "${stove.kg} < 2"}, OUTPUTS)["text"] == "1.24 < 2 = true"
    assert compute({"value": "${stove.name}"}, OUTPUTS)["text"] == "value = Cinder II"
    assert compute({"value": 2.0}, OUTPUTS) == {"result": 2, "text": "value = 2"}
    assert compute({"value": "2**90"}, {})["text"] == f"2**90 = {2**90}"


def test_missing_references_are_raised_as_they_are() -> None:
    for spec in ({"value": "${nobody} + 1"}, {"sum": ["${nobody.x}"]}, {"max": "${stove.colour}"}):
        with pytest.raises(MissingReference, match=r"nobody|colour"):
            compute(spec, OUTPUTS)


@pytest.mark.parametrize(
    ("spec", "result"),
    [
        ({"sum": ["${stove.price}", "${bag.price}", 5]}, {"result": 88.55, "text": "sum = 88.55"}),
        ({"sum": "${cities}", "by": "pop"}, {"result": 162, "text": "sum = 162"}),
        ({"sum": ["${cities[*].pop}", "${total}"]}, {"result": 167, "text": "sum = 167"}),
        ({"average": "${three}"}, {"result": 2, "text": "average = 2"}),
        ({"count": "${cities}"}, {"result": 3, "text": "count = 3"}),
        ({"count": "${empty}"}, {"result": 0, "text": "count = 0"}),
        (
            {"count": "${json_text}", "where": {"by": "pop", "is": ">", "than": 50}},
            {"result": 2, "text": "count = 2"},
        ),
        (
            {"max": ["${stove.kg}", "${bag.kg}", "${tent.kg}"]},
            {"result": 3.85, "label": "Tarn tent", "text": "highest: Tarn tent (3.85)"},
        ),
        (
            {"max": ["${three[0]}", "${total}"]},
            {"result": 5, "label": "total", "text": "highest: total (5)"},
        ),
        (
            {"min": "${cities}", "by": "pop"},
            {"result": CITIES[1], "value": 40, "label": "Oslo", "text": "lowest: Oslo (40)"},
        ),
        (
            {"max": "${cities}", "by": "pop"},
            {
                "result": CITIES[0],
                "value": 61,
                "label": "Norvik",
                "ties": ["Norvik", "Tarn"],
                "text": "highest: Norvik = Tarn (61), equal",
            },
        ),
        (
            {"max": "${three}", "labels": ["a", "b", "c"]},
            {"result": 3, "label": "a", "text": "highest: a (3)"},
        ),
        ({"min": "${cities[*].name}"}, {"result": "Norvik", "label": "Norvik", "text": "first: Norvik"}),
        (
            {"max": [{"label": "A", "value": 3}, {"label": "B", "value": "${total}"}]},
            {"result": 5, "label": "B", "text": "highest: B (5)"},
        ),
        (
            {"rank": ["${tent.kg}", "${stove.kg}", "${bag.kg}"]},
            {
                "result": [
                    {"label": "Cinder II", "value": 1.24},
                    {"label": "Fjell backpack", "value": 1.97},
                    {"label": "Tarn tent", "value": 3.85},
                ],
                "text": "Cinder II (1.24) < Fjell backpack (1.97) < Tarn tent (3.85)",
            },
        ),
        (
            {"rank": "${cities}", "by": "pop", "order": "descending"},
            {
                "result": [CITIES[0], CITIES[2], CITIES[1]],
                "ties": [["Norvik", "Tarn"]],
                "text": "Norvik (61) = Tarn (61) > Oslo (40)",
            },
        ),
        ({"sort": "${three}"}, {"result": [1, 2.0, 3], "text": "1 < 2 < 3"}),
        (
            {"filter": "${cities}", "where": {"by": "name", "is": "in", "than": ["Oslo", 5]}},
            {"result": [CITIES[1]], "text": "1 found: Oslo"},
        ),
        (
            {"filter": "${three}", "where": {"is": ">=", "than": "${three[2]}"}},
            {"result": [3, 2.0], "text": "2 found: 3, 2"},
        ),
        ({"filter": "${three}", "where": {"is": "==", "than": 9}}, {"result": [], "text": "0 found"}),
        (
            {"average": "${cities}", "by": "pop", "where": {"is": "<", "than": 50}, "labels": None},
            {"result": 40, "text": "average = 40"},
        ),
    ],
)
def test_aggregate_gives_its_result_and_a_line(spec: dict[str, Any], result: dict[str, Any]) -> None:
    assert problems(spec) == []
    assert compute(spec, OUTPUTS) == result


def test_labels_come_from_the_spec_then_the_owner_then_the_step() -> None:
    def label(spec: dict[str, Any]) -> str:
        return compute(spec, {**OUTPUTS, "w1": {"result": 1}, "w2": {"result": 2}}, {"w2": "Oslo"})["label"]

    assert label({"max": ["${w1}", "${w2}"]}) == "Oslo"
    assert label({"min": ["${w1}", "${w2}"]}) == "w1"
    assert label({"max": ["${w1}", "${w2}"], "labels": ["x", "${stove.name}"]}) == "Cinder II"
    assert label({"max": ["${cities[0].pop}", "${cities[1].pop}"]}) == "Norvik"
    assert label({"max": ["${wrapped.items[0].pop}", "${wrapped.total}"]}) == "Norvik"
    assert label({"max": ["${stove.kg}", "${stove.price}"]}) == "stove.price"
    assert label({"max": "${cities[*].pop}", "labels": "${cities[*].name}"}) == "Norvik"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"sum": ["${total}", "${stove.text}"]}, "${stove.text} is the text '12 kg'"),
        ({"max": ["${stove.text}", "${bag.text}"]}, "not a number"),
        ({"max": ["${tent.text}", 3]}, "${tent.text} is the text 'plain', not a number"),
        ({"max": "${cities}"}, "${cities}[0] is the object"),
        ({"max": "${cities}", "by": "colour"}, "'colour' of ${cities}[0]: there is no 'colour'; there are 'name'"),
        ({"max": "${cities}", "by": "tags"}, "'tags' of ${cities}[1]"),
        ({"sum": ["${stove.none}"]}, "${stove.none} is null"),
        ({"sum": [True]}, "element 1 is the boolean true"),
        ({"max": "${empty}"}, "empty"),
        ({"sum": "${three}", "where": {"is": ">", "than": 9}}, "no element that fulfils 'where'"),
        ({"sum": "${wrapped}"}, "not a list; there are lists in 'items'"),
        ({"max": "${total}"}, "${total} is the number 5, not a list"),
        ({"max": "${three}", "labels": ["a"]}, "there are 3 elements"),
        ({"filter": "${cities}", "where": {"by": "pop", "is": ">", "than": "many"}}, "'than' is the text 'many'"),
        ({"filter": "${cities}", "where": {"by": "pop", "is": "in", "than": "${total}"}}, "'than' is the number 5"),
        ({"max": None}, "'max' is still open"),
    ],
)
def test_aggregate_that_cannot_be_computed_names_the_culprit(spec: dict[str, Any], words: str) -> None:
    assert problems(spec) == []
    assert words in error_of(spec)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "it has nothing"),
        ({"median": [1]}, "it has 'median'"),
        ({"sum": [1], "max": [1]}, "it has sum, max"),
        ({"sum": [1], "order": "ascending"}, "'sum' takes no 'order'"),
        ({"value": "1", "by": "x"}, "'value' takes no 'by', only its operand"),
        ({"value": [1]}, "'value' takes an expression"),
        ({"value": True}, "'value' takes an expression"),
        ({"sum": "stove"}, "'sum' takes a list of references"),
        ({"sum": {}}, "'sum' takes a list of references"),
        ({"sum": []}, "'sum' has an empty list"),
        ({"sum": [1, None]}, "null in 'sum'"),
        ({"sum": ["${a b}"]}, "'${a b}' in 'sum'"),
        ({"rank": [1], "order": "up"}, "ascending or descending"),
        ({"max": [1], "by": 5}, "'by' is the path"),
        ({"max": [1], "labels": "a"}, "'labels' is a list"),
        ({"filter": "${a}"}, "'filter' needs 'where'"),
        ({"filter": "${a}", "where": {"is": "~", "than": 1}}, "'is' is one of < <= > >= == != in"),
        ({"filter": "${a}", "where": {"is": "<"}}, "'where' is an object"),
        ({"filter": "${a}", "where": {"is": "in", "than": "x"}}, "'in' takes a list"),
        ({"filter": "${a}", "where": {"is": "<", "than": 1, "by": "["}}, "'by' is the path"),
    ],
)
def test_malformed_spec_is_a_problem_before_anything_runs(spec: dict[str, Any], words: str) -> None:
    assert any(words in problem for problem in problems(spec))
    assert words in error_of(spec)


def test_open_operand_is_legal_and_named() -> None:
    for name in OPERATORS:
        spec = {name: None}  # of a filter, what it looks for is open too
        assert problems(spec) == []
        assert open_operand(spec) == name
    assert open_operand({"sum": [1], "by": None}) is None


def test_long_lists_are_said_in_short() -> None:
    text = compute({"sort": "${many}"}, {"many": {"result": list(range(1000))}})["text"]
    assert text.startswith("0 < 1 < 2")
    assert text.endswith("19 and 980 more")


LITERALS = st.decimals(-1000, 1000, places=2, allow_nan=False).map(abs)
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def combined(parts: st.SearchStrategy[tuple[str, Fraction]]) -> st.SearchStrategy[tuple[str, Fraction]]:
    def build(args: tuple[tuple[str, Fraction], str, tuple[str, Fraction]]) -> tuple[str, Fraction]:
        (left, a), sign, (right, b) = args
        return f"({left} {sign} {right})", OPERATIONS[sign](a, b)

    return st.tuples(parts, st.sampled_from(sorted(OPERATIONS)), parts).map(build)


@given(st.recursive(LITERALS.map(lambda d: (str(d), Fraction(d))), combined, max_leaves=8))
def test_arithmetic_agrees_with_fractions(pair: tuple[str, Fraction]) -> None:
    text, wanted = pair
    result = compute({"value": text}, {})["result"]
    assert result == (int(wanted) if wanted.denominator == 1 and abs(wanted) < 2**63 else float(wanted))


@given(LITERALS, LITERALS.filter(bool), st.booleans(), st.booleans())
def test_division_and_remainder_round_down(left: Decimal, right: Decimal, minus: bool, negative: bool) -> None:
    a, b = -Fraction(left) if minus else Fraction(left), -Fraction(right) if negative else Fraction(right)
    outputs = {"a": {"result": float(a)}, "b": {"result": float(b)}}
    assert compute({"value": "${a} // ${b}"}, outputs)["result"] == a // b
    assert compute({"value": "${a} % ${b}"}, outputs)["result"] == float(a % b)
    assert math.isclose(compute({"value": "${a} / ${b}"}, outputs)["result"], a / b, rel_tol=1e-15)


AMOUNTS = st.floats(-1e15, 1e15).filter(lambda x: x == 0 or abs(x) > 1e-40)  # within the digits that are kept


@given(st.lists(AMOUNTS | st.integers(-(2**53), 2**53), min_size=1, max_size=12))
def test_aggregates_agree_with_exact_arithmetic(values: list[float | int]) -> None:
    exact = [Fraction(Decimal(repr(value))) for value in values]
    outputs = {"v": {"result": values}}
    total = sum(exact, Fraction())
    assert compute({"sum": "${v}"}, outputs)["result"] == (total if total.denominator == 1 else float(total))
    assert math.isclose(compute({"average": "${v}"}, outputs)["result"], sum(exact) / len(exact), rel_tol=1e-15)
    assert compute({"max": "${v}"}, outputs)["result"] == max(values)
    assert compute({"sort": "${v}"}, outputs)["result"] == sorted(values)


WORDS = [
    "${a.x}",
    "${a}",
    "${b[*].x}",
    "${b}",
    "${zz}",
    "${a.",
    "x",
    "ascending",
    "in",
    "<",
    "1",
    "12 kg",
    "1e999",
    "2*3",
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.sampled_from(WORDS) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3)
)
KEYS = st.sampled_from([*OPERATORS, "by", "order", "labels", "where", "other"])
WHERE = st.fixed_dictionaries({"is": st.sampled_from(["<", "==", "in", "!=", "~"]), "than": VALUES})
SPECS = st.dictionaries(KEYS, VALUES | WHERE, max_size=3)
NOISE = st.lists(
    st.sampled_from([*WORDS, *"+-*/%()[],.<>=!'\"\\\n ", "**", "//", "and", "not", "max", "round", "9", "0.5", "True"])
    | st.text(max_size=3),
    max_size=12,
).map("".join)


@settings(max_examples=300)
@given(SPECS | NOISE.map(lambda text: {"value": text}), VALUES, VALUES)
def test_nothing_but_the_two_errors_comes_of_any_spec(spec: dict[str, Any], one: Any, other: Any) -> None:
    outputs = {"a": {"result": {"x": one, "y": other}}, "b": {"result": [{"x": one}, {"x": other}, other]}}
    found = problems(spec)
    try:
        result = compute(spec, outputs)
    except (ComputeError, MissingReference):
        return
    assert found == []
    assert isinstance(result["text"], str)
    json.dumps(result, allow_nan=False)


def test_deep_values_and_many_digits_are_refused() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    outputs: dict[str, Any] = {"d": {"result": deep}, "t": {"result": "1" * 5000}, "e": {"result": "1e9999"}}
    for spec in ({"sum": "${d}"}, {"value": "sum(${d})"}, {"value": "${d}"}, {"value": "${t} + 1"}, {"sum": ["${e}"]}):
        with pytest.raises(ComputeError):
            compute(spec, outputs)
