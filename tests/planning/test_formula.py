"""Computations as forms, and the binder's reading of them."""

from functools import partial

import pytest

from replan.encoding import JSONObject
from replan.model import ModelProfile
from replan.output import OutputProblem
from replan.planning.binder import binder_stage, compute_prompt, values_of
from replan.planning.compute import compute
from replan.planning.formula import formula_schema, formula_spec
from replan.planning.plan import Step
from replan.settings import ModelSettings
from replan.testing import ScriptedModel

LABELS = {"s1": "Plum loaf", "s2": "Rye wheel", "s3": "EUR, NOK"}
LOAF: JSONObject = {"name": "Plum loaf", "flour_g": 340, "price_eur": 2.5}
WHEEL: JSONObject = {"name": "Rye wheel", "flour_g": 515, "price_eur": 4.0}
BOTH = {"s1": {"result": LOAF}, "s2": {"result": WHEEL}}
OPEN: JSONObject = {"value": None}


def forms(outputs: dict[str, JSONObject], goal: str) -> dict[str, JSONObject]:
    """What the forms offer, by what they work out."""
    schema = formula_schema(OPEN, values_of(outputs, LABELS), goal)
    found: dict[str, JSONObject] = {}
    for form in schema["anyOf"]:
        how = form["properties"]["how"]
        found |= dict.fromkeys(how.get("enum") or [how["const"]], form["properties"])
    return found


def worked_out(outputs: dict[str, JSONObject], **form: object) -> JSONObject:
    spec = formula_spec(dict(form), OPEN, values_of(outputs, LABELS))
    assert spec
    return compute(spec, outputs, LABELS)


def test_values_have_references_names_and_owners():
    found = values_of({"s1": {"result": [{"no": "L-1", "fine": 2}]}, "s2": {"result": 14.5, "text": "= 14.5"}}, LABELS)
    assert [(v["ref"], v["owner"], v["name"], v["value"]) for v in found] == [
        ("${s1.result[0].no}", "Plum loaf", "no", "L-1"),
        ("${s1.result[0].fine}", "Plum loaf", "fine", 2),
        ("${s2.result}", "Rye wheel", "result", 14.5),
    ]


def test_json_in_a_text_is_read():
    assert [v["value"] for v in values_of({"s1": {"result": '{"a": 1}'}, "s2": {"result": "7.5"}}, LABELS)] == [1, 7.5]


def test_each_value_takes_part_as_often_as_the_goal_says():
    offered = forms(BOTH, "We bake 3 Plum loaves and four Rye wheels with 10% more flour")
    assert offered["sum"]["times"]["properties"] == {"Plum loaf": {"const": 3}, "Rye wheel": {"const": 4}}
    assert offered["sum"]["then"]["enum"] == ["nothing", "10% less", "10% more", "only 10%"]
    times = {"Plum loaf": 3, "Rye wheel": 4}
    assert worked_out(BOTH, how="sum", field="flour_g", times=times, then="10% more")["result"] == 3388


@pytest.mark.parametrize(
    ("then", "result"),
    [
        ("nothing", 340),
        ("times 2", 680),
        ("divided by 2", 170),
        ("minus 40", 300),
        ("400 minus it", 60),
        ("only 50%", 170),
    ],
)
def test_a_total_is_changed_as_said(then: str, result: float):
    assert worked_out({"s1": {"result": LOAF}}, how="sum", field="flour_g", then=then)["result"] == result


def test_numbers_of_the_goal_that_count_nothing_change_the_total():
    assert forms({"s1": {"result": LOAF}}, "flour of a Plum loaf shared by 5")["sum"]["then"]["enum"][1:3] == [
        "times 5",
        "divided by 5",
    ]


def test_what_is_highest_of_several_is_told_as_an_order():
    assert worked_out(BOTH, how="highest", field="flour_g")["text"] == "highest: Rye wheel (515)"
    three = {**BOTH, "s3": {"result": {"name": "Bun", "flour_g": 60}}}
    assert worked_out(three, how="lowest", field="flour_g")["text"] == "Bun (60) < Plum loaf (340) < Rye wheel (515)"


def test_a_difference_is_how_far_apart_two_are():
    assert worked_out(BOTH, how="difference", field="flour_g")["result"] == 175


def test_a_rate_meets_the_field_in_its_currency():
    outputs: dict[str, JSONObject] = {"s1": {"result": LOAF}, "s3": {"result": 14.28}}
    assert forms(outputs, "in kroner?")["product"]["use"]["properties"] == {
        "Plum loaf": {"enum": ["price_eur"]},
        "EUR, NOK": {"enum": ["result"]},
    }
    use = {"Plum loaf": "price_eur", "EUR, NOK": "result"}
    assert worked_out(outputs, how="product", use=use)["result"] == 35.7


def test_the_numbers_of_a_list_are_summed_or_counted():
    fines: dict[str, JSONObject] = {"s1": {"result": [{"fine": 1.35}, {"fine": 4.8}]}}
    assert worked_out(fines, how="sum", field="fine")["result"] == 6.15
    assert worked_out(fines, how="count", field="fine")["result"] == 2
    assert worked_out(fines, how="average", field="fine")["result"] == 3.075


def test_dates_are_compared():
    outputs: dict[str, JSONObject] = {"s1": {"result": {"due": "2031-04-02"}}, "s2": {"result": {"due": "2030-01-09"}}}
    assert worked_out(outputs, how="lowest", field="due")["label"] == "Rye wheel"


def test_one_number_alone_is_nothing_to_work_out():
    assert list(forms({"s1": {"result": LOAF}}, "the flour of a Plum loaf")) == ["nothing"]
    assert formula_spec({"how": "nothing"}, OPEN, values_of(BOTH, LABELS)) == OPEN


def stage_of(profile: ModelProfile):
    return binder_stage(ScriptedModel(profile=profile), (), "", ModelSettings())


def args(spec: JSONObject) -> JSONObject:
    return {"bind": {"compute": spec, "goal": "which?", "values": values_of(BOTH, LABELS)}}


def test_the_binder_completes_a_computation():
    read = partial(stage_of(ModelProfile()).read or pytest.fail, args({"max": None, "where": None}))
    refs = ["${s1.result.flour_g}", "${s2.result.flour_g}"]
    assert read('{"field": "flour_g"}') == {"max": refs}
    assert read('{"compute": {"max": ["${s1.result.flour_g}"]}}') == {"max": refs[:1]}
    assert partial(stage_of(ModelProfile()).read or pytest.fail, args(OPEN))('{"how": "nothing"}') == OPEN


@pytest.mark.parametrize("text", ["no", '{"field": "colour"}', '{"max": "x"}'])
def test_what_is_no_computation_goes_back(text: str):
    with pytest.raises(OutputProblem):
        (stage_of(ModelProfile()).read or pytest.fail)(args({"max": None}), text)


def test_the_prompt_has_the_values_by_owner():
    text = compute_prompt("Which?", Step(id="s3", description="Compare"), {"max": None}, values_of(BOTH, LABELS))
    assert '- Plum loaf ${s1.result}: name "Plum loaf", flour_g 340, price_eur 2.5' in text
    assert text.endswith('Step: Compare\nCompute {"max":null}')


def test_a_number_in_a_name_counts_nothing_else():
    outputs: dict[str, JSONObject] = {"s1": {"result": LOAF}, "s2": {"result": WHEEL}}
    found = forms(outputs, "flour of the Plum loaf 3 and the Rye wheel together?")
    assert found["sum"]["times"]["properties"] == {"Plum loaf": {"const": 1}, "Rye wheel": {"const": 1}}
    assert forms(outputs, "2 pieces of the Rye wheel")["sum"]["times"]["properties"]["Rye wheel"] == {"const": 2}
