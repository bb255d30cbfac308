import datetime
import json
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, TypedDict, TypeVar

import pydantic
import pytest
from typing_extensions import TypedDict as AnyTypedDict

from replan.errors import ConfigError
from replan.output import OutputProblem, TypedOutput


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True, extra="forbid")
    when: datetime.date
    sizes: tuple[int, int]
    tags: set[str] = set()


class Aliased(pydantic.BaseModel):
    full_name: str = pydantic.Field(alias="fullName")


class OneWay(pydantic.BaseModel):
    name: str = pydantic.Field(validation_alias="in", serialization_alias="out")


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


@dataclass
class Point:
    x: int
    y: Decimal = Decimal(0)
    names: list[str] = field(default_factory=list)


class Options(AnyTypedDict, total=False):
    key: str


DAY = datetime.date(2026, 1, 2)
CASES: list[tuple[Any, Any, Any]] = [
    (Strict, {"when": "2026-01-02", "sizes": [1, 2]}, Strict(when=DAY, sizes=(1, 2))),
    (Strict, {"when": "2026-01-02", "sizes": [1, 2], "tags": ["a"]}, Strict(when=DAY, sizes=(1, 2), tags={"a"})),
    (Aliased, {"fullName": "Ann"}, Aliased(fullName="Ann")),
    (OneWay, {"in": "a"}, OneWay.model_validate({"in": "a"})),
    (Node, {"value": 1, "children": [{"value": 2}]}, Node(value=1, children=[Node(value=2)])),
    (Point, {"x": 1, "y": "0.1"}, Point(1, Decimal("0.1"))),
    (Options, {"key": "a"}, {"key": "a"}),
    (dict[str, int], {"a": 1}, {"a": 1}),
]
WRAPPED: list[tuple[Any, Any, Any]] = [
    (list[int], [1, 2], [1, 2]),
    (int, 5, 5),
    (Literal["yes", "no"], "yes", "yes"),
    (int | None, None, None),
    (int | Point, {"x": 2}, Point(2)),
    (Annotated[int, pydantic.Field(ge=3)], 3, 3),
    (list[Point], [{"x": 1}], [Point(1)]),
    (Node | None, {"value": 1}, Node(value=1)),
]


@pytest.mark.parametrize(("kind", "written", "value"), CASES + WRAPPED)
def test_a_reply_becomes_a_value_and_the_same_value_again_after_storage(kind: Any, written: Any, value: Any):
    typed = TypedOutput(kind)
    reply = {"result": written} if (kind, written, value) in WRAPPED else written
    output = typed.read(json.dumps(reply))
    assert typed.value(output) == value
    assert typed.value(json.loads(json.dumps(output))) == value


@pytest.mark.parametrize(("kind", "written", "value"), WRAPPED)
def test_a_value_that_should_be_wrapped_may_come_bare(kind: Any, written: Any, value: Any):
    if isinstance(written, (dict, list)):
        assert TypedOutput(kind).value(TypedOutput(kind).read(json.dumps(written))) == value


@pytest.mark.parametrize("kind", [case[0] for case in CASES + WRAPPED])
def test_the_schema_is_an_object_with_all_its_definitions(kind: Any):
    schema = TypedOutput(kind).schema
    assert schema.schema["type"] == "object"
    text = json.dumps(schema.schema)
    for part in text.split('"$ref": "')[1:]:
        reference = part.split('"')[0]
        assert reference.removeprefix("#/$defs/") in schema.schema["$defs"]


T = TypeVar("T")


class Box(pydantic.BaseModel, Generic[T]):
    value: T


Accented = pydantic.create_model("Größe", a=int)


@pytest.mark.parametrize(
    ("kind", "name"), [(Point, "Point"), (Accented, "output"), (Box[int], "output"), (int | str, "output")]
)
def test_the_schemas_name_can_be_sent_to_any_provider(kind: Any, name: str):
    assert TypedOutput(kind).schema.name == name


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ("no", "it holds no JSON"),
        ('{"x": "a"}', "x: Input should be a valid integer"),
        ("{}", "x: Field required"),
        ("[]", "the value: "),
        ('{"x": 1, "names": [1]}', "names.0: Input should be a valid string"),
    ],
)
def test_a_reply_that_does_not_fit_is_a_problem_in_the_validators_words(reply: str, words: str):
    with pytest.raises(OutputProblem) as caught:
        TypedOutput(Point).read(reply)
    assert words in str(caught.value)
    assert str(caught.value).endswith("Reply again with only the corrected JSON.")
    assert "pydantic" not in str(caught.value)


def test_the_object_that_fits_is_taken_among_several():
    assert TypedOutput(Point).read('First {"y": 1}, better: {"x": 1}.') == {"x": 1}


def test_a_long_list_of_problems_is_kept_short():
    with pytest.raises(OutputProblem) as caught:
        TypedOutput(list[int]).read(json.dumps({"result": ["a"] * 500}))
    assert len(str(caught.value)) < 1000


def test_a_validator_of_the_users_speaks_to_the_model():
    class Even(pydantic.BaseModel):
        n: int

        @pydantic.field_validator("n")
        @classmethod
        def even(cls, n: int) -> int:
            if n % 2:
                raise ValueError("give an even number")
            return n

    with pytest.raises(OutputProblem, match="n: Value error, give an even number"):
        TypedOutput(Even).read('{"n": 3}')


class Undefined(TypedDict):
    key: "Missing"  # noqa: F821


@pytest.mark.parametrize("kind", [object(), Undefined, type(lambda: None)])
def test_what_has_no_schema_is_a_configuration_error(kind: Any):
    with pytest.raises(ConfigError, match="has no JSON schema"):
        TypedOutput(kind)
