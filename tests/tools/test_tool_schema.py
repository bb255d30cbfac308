import collections.abc
import dataclasses
import datetime
import decimal
import enum
import functools
import subprocess
import sys
import typing
import uuid
from typing import Annotated, Any, Literal, NotRequired, Optional, TypedDict

import pydantic
import pytest
from pydantic import Field

from replan.errors import ConfigError
from replan.tool import InvalidArguments, ToolContext
from replan.tools import FunctionTool, tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


class Order(pydantic.BaseModel):
    """An order."""

    number: int
    title: str = Field(default="none", title="noise", description="what it is called")
    points: list[Point] = []


class Filter(TypedDict):
    key: str
    limit: NotRequired[int]


class Node(pydantic.BaseModel):
    value: int
    children: list["Node"] = []


def test_a_schema_has_types_defaults_and_texts_and_nothing_else():
    @tool
    def search(query: str, limit: Annotated[int, Field(ge=1)] = 5, exact: bool = False) -> str:
        """Find documents.

        Newest first.

        Args:
            query: words to look for,
                separated by spaces
            limit: how many

        Returns:
            One line for each.

        Raises:
            ValueError: never.
        """
        return query

    assert search.info.description == "Find documents.\n\nNewest first."
    assert search.info.parameters == {
        "type": "object",
        "properties": {
            "query": {"description": "words to look for,\nseparated by spaces", "type": "string"},
            "limit": {"default": 5, "description": "how many", "minimum": 1, "type": "integer"},
            "exact": {"default": False, "type": "boolean"},
        },
        "required": ["query"],
        "additionalProperties": False,
    }
    assert list(search.info.parameters) == ["type", "properties", "required", "additionalProperties"]
    assert search.info.output_schema == {"type": "string"}


def test_a_tool_without_parameters_has_an_empty_object_schema():
    @tool
    def now() -> None: ...

    assert now.info.parameters == {"type": "object", "properties": {}, "additionalProperties": False}
    assert now.info.description == ""
    assert now.info.output_schema is None


def test_kinds_of_types_become_their_json_schemas():
    @tool
    def f(
        literal: Literal["a", "b"],
        colour: Colour,
        when: datetime.datetime,
        amount: decimal.Decimal,
        ident: uuid.UUID,
        tags: set[str],
        pair: tuple[int, str],
        table: dict[str, int],
        either: int | list[str],
        maybe: Optional[int],  # noqa: UP045
        anything,
        whatever: Any = None,
    ) -> None: ...

    properties = f.info.parameters["properties"]
    assert properties["literal"] == {"enum": ["a", "b"], "type": "string"}
    assert properties["colour"] == {"$ref": "#/$defs/Colour"}
    assert f.info.parameters["$defs"] == {"Colour": {"enum": ["red", "blue"], "type": "string"}}
    assert properties["when"] == {"format": "date-time", "type": "string"}
    assert properties["ident"] == {"format": "uuid", "type": "string"}
    assert properties["tags"] == {"items": {"type": "string"}, "type": "array", "uniqueItems": True}
    assert properties["pair"]["prefixItems"] == [{"type": "integer"}, {"type": "string"}]
    assert properties["table"] == {"additionalProperties": {"type": "integer"}, "type": "object"}
    assert properties["either"] == {"anyOf": [{"type": "integer"}, {"items": {"type": "string"}, "type": "array"}]}
    assert properties["maybe"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["anything"] == {}
    assert properties["whatever"] == {"default": None}


def test_nested_models_are_definitions_without_titles():
    @tool
    def place(order: Order, at: Point, only: Filter | None = None) -> None: ...

    definitions = place.info.parameters["$defs"]
    assert sorted(definitions) == ["Filter", "Order", "Point"]
    assert definitions["Order"]["description"] == "An order."
    assert definitions["Order"]["properties"]["title"] == {
        "default": "none",
        "description": "what it is called",
        "type": "string",
    }
    assert definitions["Filter"]["required"] == ["key"]


def test_a_recursive_model_keeps_its_reference():
    @tool
    def walk(node: Node) -> int:
        return len(node.children)

    assert walk.info.parameters["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert walk.validate({"node": {"value": 1, "children": [{"value": 2}]}})


@pytest.mark.parametrize(
    "text",
    [
        "Add.\n\nArgs:\n    a: the first\n    b (int, optional): the second",
        "Add.\n\nParameters\n----------\na : int\n    the first\nb : int\n    the second\n\nReturns\n-------\nint",
        "Add.\n\n:param a: the first\n:param int b: the second\n:returns: the sum",
    ],
    ids=["google", "numpy", "rest"],
)
def test_docstring_styles_describe_parameters(text: str):
    def add(a: int, b: int = 0) -> int:
        return a + b

    add.__doc__ = text
    info = tool(add).info
    assert info.description == "Add."
    assert [p["description"] for p in info.parameters["properties"].values()] == ["the first", "the second"]


@pytest.mark.parametrize(
    ("text", "description", "described"),
    [
        ("Add\nthis now.\n\nArgs:\n  a (int): x", "Add\nthis now.", {"a": "x"}),
        ("\nArgs:\n    a: use x: y\n    b: {'k': 1}", "", {"a": "use x: y", "b": "{'k': 1}"}),
        ("Add.\n\nParameters\n----------\na, b : int\n    both\n\nNotes\n-----\nn", "Add.", {"a": "both", "b": "both"}),
        ("Add.\n\nSteps:\n    1. a\n    2. b", "Add.\n\nSteps:\n    1. a\n    2. b", {}),
        ("A title\n-------\ntext", "A title\n-------\ntext", {}),
        ("Add.\n\nExample:\n    >>> f(1)", "Add.", {}),
        ("", "", {}),
    ],
)
def test_sections_are_cut_from_the_description(text: str, description: str, described: dict[str, str]):
    def add(a: int = 1, b: int = 2) -> None: ...

    add.__doc__ = text
    info = tool(add).info
    assert info.description == description
    properties = info.parameters["properties"]
    assert {name: p["description"] for name, p in properties.items() if "description" in p} == described


def test_a_docstring_with_colons_and_code_stays_whole():
    def f() -> None:
        """Do it.

        Note: slow for large inputs.
        Use `a: b` or x::y.

            f()
        """

    assert tool(f).info.description == "Do it.\n\nNote: slow for large inputs.\nUse `a: b` or x::y.\n\n    f()"


def test_annotated_texts_come_before_the_docstring():
    @tool
    def f(
        a: Annotated[int, "from text"],
        b: Annotated[int, Field(description="from field", gt=2)],
        c: int = Field(3, description="from default", lt=9),
        d: int = 4,
    ) -> int:
        """F.

        Args:
            a: from docstring
            b: from docstring
            c: from docstring
            d: from docstring
        """
        return c

    properties = f.info.parameters["properties"]
    texts = [p["description"] for p in properties.values()]
    assert texts == ["from text", "from field", "from default", "from docstring"]
    assert properties["b"]["exclusiveMinimum"] == 2
    assert (properties["c"]["default"], properties["c"]["exclusiveMaximum"]) == (3, 9)
    assert f.info.parameters["required"] == ["a", "b"]


async def test_a_field_as_default_gives_its_value_to_the_function(context: ToolContext[Any]):
    @tool
    async def f(c: int = Field(3), d: list[int] = Field(default_factory=list)) -> list[Any]:  # noqa: B008
        return [c, d]

    assert (await f.call({}, context)).structured == [3, []]


async def test_an_alias_is_the_name_that_the_model_sees(context: ToolContext[Any]):
    @tool
    async def f(from_: Annotated[str, Field(alias="from")]) -> str:
        return from_

    assert f.info.parameters["required"] == ["from"]
    assert (await f.call({"from": "here"}, context)).content[0].text == "here"


async def test_no_parameter_name_clashes(context: ToolContext[Any]):
    @tool
    async def f(
        self: int,
        schema: int,
        json: int,
        copy: int,
        model_config: int,
        model_fields: int,
        _hidden: int,
        p0: int,
        cls: int,
    ) -> list[int]:
        return [self, schema, json, copy, model_config, model_fields, _hidden, p0, cls]

    names = ["self", "schema", "json", "copy", "model_config", "model_fields", "_hidden", "p0", "cls"]
    assert list(f.info.parameters["properties"]) == names
    output = await f.call({name: i for i, name in enumerate(names)}, context)
    assert output.structured == list(range(9))


def test_annotations_as_text_are_resolved_also_locally():
    @dataclasses.dataclass
    class Local:
        n: int

    def f(a: "Local", b: "list[Point]", c: "Literal['x']" = "x") -> "Local":
        return a

    def g() -> "Local": ...  # type: ignore[empty-body]

    assert tool(g).info.output_schema is not None
    info = tool(f).info
    assert sorted(info.parameters["$defs"]) == ["Local", "Point"]
    assert info.output_schema == {"properties": {"n": {"type": "integer"}}, "required": ["n"], "type": "object"}


FUTURE = """
from __future__ import annotations
import typing
from dataclasses import dataclass
from replan.tools import tool
if typing.TYPE_CHECKING:
    from replan.tool import ToolContext
    from nowhere import Missing

@tool
async def first(later: Later, ctx: ToolContext[int] | None = None) -> Missing:
    return later.n

@tool
def second(what: Missing) -> None: ...

@dataclass
class Later:
    n: int
"""


def test_a_module_with_postponed_annotations():
    module: dict[str, Any] = {"__name__": "postponed"}
    sys.modules["postponed"] = sys.modules[__name__]
    try:
        exec(compile(FUTURE, "postponed", "exec"), module)
        first = module["first"]
        assert list(first.info.parameters["properties"]) == ["later"]
        assert first.info.output_schema is None
        with pytest.raises(ConfigError, match=r"'Missing' of parameter 'what' of tool 'second'.*TYPE_CHECKING"):
            module["second"].check()
    finally:
        del sys.modules["postponed"]


@pytest.mark.parametrize(
    ("source", "advice"),
    [
        ("def f(*args): ...", "'\\*args' of tool 'f': .*a list"),
        ("def f(a, **kwargs: int): ...", "kwargs.* of tool 'f': .*a dict"),
        ("def f(a, /): ...", "'a' of tool 'f': take the '/' out"),
    ],
)
def test_parameters_that_no_model_can_fill_are_refused_at_once(source: str, advice: str):
    names: dict[str, Any] = {}
    exec(source, names)
    with pytest.raises(ConfigError, match=advice):
        tool(names["f"])


def test_a_type_that_json_cannot_hold_is_refused_by_check():
    class Connection: ...

    @tool
    def f(a: int, link: Connection) -> None: ...

    with pytest.raises(ConfigError, match=r"parameter 'link' of tool 'f' has the type .*Connection.*partial"):
        f.check()

    def g(a: int, back: collections.abc.Callable[[], int]) -> None: ...

    with pytest.raises(ConfigError, match="parameter 'back' of tool 'g'"):
        tool(g).check()


def test_check_gives_the_tool():
    @tool
    def f() -> None: ...

    assert f.check() is f


def test_a_default_that_json_cannot_hold_is_left_out_of_the_schema():
    marker = object()

    def f(a: int = marker, b: float = float("nan")) -> None: ...  # type: ignore[assignment]

    properties = tool(f).info.parameters["properties"]
    assert properties["a"] == {"type": "integer"}
    assert properties["b"] == {"default": None, "type": "number"}


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int, {"type": "integer"}),
        (list[str], {"items": {"type": "string"}, "type": "array"}),
        (dict[str, float], {"additionalProperties": {"type": "number"}, "type": "object"}),
        (collections.abc.Iterator[int], {"items": {"type": "integer"}, "type": "array"}),
        (collections.abc.AsyncGenerator[int, None], {"items": {"type": "integer"}, "type": "array"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Any, None),
        (None, None),
        (object, None),
        (bytes, None),
        (typing.Callable[[], int], None),
    ],
)
def test_the_return_annotation_is_the_output_schema(annotation: Any, schema: Any):
    def f(): ...

    f.__annotations__["return"] = annotation
    assert tool(f).info.output_schema == schema


def test_output_schemas_name_fields_as_results_do():
    class Row(pydantic.BaseModel):
        key: int = Field(alias="Key")

    def f() -> Row: ...  # type: ignore[empty-body]

    schema = tool(f).info.output_schema
    assert schema is not None
    assert list(schema["properties"]) == ["key"]


def test_what_a_partial_binds_is_hidden():
    def fetch(client: object, url: str, retries: int = 3) -> str:
        """Fetch a page."""
        return url

    info = tool(functools.partial(fetch, client=object(), retries=1), name="fetch_page").info
    assert (info.name, info.description) == ("fetch_page", "Fetch a page.")
    assert list(info.parameters["properties"]) == ["url"]
    assert tool(functools.partial(fetch, object())).info.name == "fetch"


@pytest.mark.parametrize(
    "hint", ["ToolContext", "ToolContext[int]", "ToolContext[int] | None", "Annotated[ToolContext, 1]"]
)
def test_the_context_is_not_in_the_schema(hint: str):
    names: dict[str, Any] = {"ToolContext": ToolContext, "Annotated": Annotated}
    exec(f"def f(a: int, anywhere: {hint}, b: int = 1): ...", names)
    assert list(tool(names["f"]).info.parameters["properties"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({}, ["count: is missing", "colour: is missing"]),
        ({"count": "5", "colour": "red"}, ['count: should be a valid integer, got "5"']),
        ({"count": 1, "colour": "green"}, ["colour: should be 'red' or 'blue', got \"green\""]),
        (
            {"count": 1, "colour": "red", "cuont": 2},
            ["cuont: is not a parameter of this tool; did you mean 'count'?"],
        ),
        ({"count": 1, "colour": "red", "zzz": 2}, ["zzz: is not a parameter of this tool"]),
        (
            {"count": 1, "colour": "red", "points": [{"x": 1}, {"x": "a"}]},
            ['points[1].x: should be a valid integer, got "a"'],
        ),
        ({"count": 1, "colour": "red", "points": [{}]}, ["points[0].x: is missing"]),
        (
            {"count": 1, "colour": "red", "either": {}},
            ["either: should be a valid integer or should be a valid array, got {}"],
        ),
    ],
)
def test_problems_name_the_parameter_and_what_was_expected(arguments: dict[str, Any], problems: list[str]):
    def f(count: int, colour: Colour, points: list[Point] | None = None, either: int | list[str] = 1) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        tool(f).validate(arguments)
    assert caught.value.problems == problems


def test_of_a_union_of_models_the_likely_one_is_spoken_of():
    class Cat(pydantic.BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(pydantic.BaseModel):
        kind: Literal["dog"]
        age: int

    def f(pet: Cat | Dog | None = None, n: int | list[int] = 0) -> None: ...

    for arguments, problems in (
        ({"pet": {"kind": "dog", "age": "old"}}, ['pet.age: should be a valid integer, got "old"']),
        ({"pet": {"kind": "dog"}}, ["pet.age: is missing"]),
        ({"n": ["a"]}, ['n[0]: should be a valid integer, got "a"']),
    ):
        with pytest.raises(InvalidArguments) as caught:
            tool(f).validate(arguments)
        assert caught.value.problems == problems


async def test_an_iterable_is_given_as_a_list(context: ToolContext[Any]):
    def f(items: collections.abc.Iterable[int]) -> list[int]:
        assert isinstance(items, list)
        return [*items, *items]

    assert (await tool(f).call({"items": [1]}, context)).structured == [1, 1]
    with pytest.raises(InvalidArguments):
        tool(f).validate({"items": ["a"]})


def test_many_and_long_problems_are_cut_short():
    def f(items: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        tool(f).validate({"items": ["x" * 5000] * 50})
    assert len(caught.value.problems) == 9
    assert caught.value.problems[-1] == "and 42 more problems"
    assert len(str(caught.value)) < 1500


def test_a_validator_that_raises_anything_is_an_argument_problem():
    def explode(value: int) -> int:
        raise KeyError("boom")

    def f(a: Annotated[int, pydantic.AfterValidator(explode)]) -> None: ...

    with pytest.raises(InvalidArguments, match="KeyError"):
        tool(f).validate({"a": 1})


def test_validation_takes_json_forms_and_converts_nothing():
    def f(amount: float, when: datetime.date, price: decimal.Decimal, tags: set[str], raw: Any = None) -> None: ...

    arguments = {"amount": 3, "when": "2026-02-03", "price": "1.10", "tags": ["a"], "raw": {"k": [1]}}
    assert tool(f).validate(arguments) is arguments
    for wrong in ({"amount": "3"}, {"when": "soon"}, {"tags": "a"}, {"amount": None}, {"amount": True}):
        with pytest.raises(InvalidArguments):
            tool(f).validate({**arguments, **wrong})


def test_defining_tools_imports_no_schema_library():
    script = (
        "import sys\nfrom replan.tools import Toolbox, tool\n"
        "@tool\ndef f(a: int) -> int: return a\n"
        "Toolbox([f])\n"
        "print([m for m in ('pydantic', 'docstring_parser') if m in sys.modules], f(2))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == "[] 2"


def test_a_tool_in_a_class_is_bound_by_access():
    class Shop:
        @tool
        def price(self, item: str) -> str:
            """The price."""
            return f"{item} of {self!r}"

        @staticmethod
        @tool
        def currency() -> str:
            return "EUR"

        shared = tool(lambda code: code, name="shared")

    shop = Shop()
    assert isinstance(shop.price, FunctionTool)
    assert list(shop.price.info.parameters["properties"]) == ["item"]
    assert shop.price("tea") == f"tea of {shop!r}"
    assert shop.currency.info.name == "currency"
    assert list(shop.shared.info.parameters["properties"]) == ["code"]
    with pytest.raises(ConfigError, match="'price' is a method: take it from an instance"):
        Shop.price.check()
