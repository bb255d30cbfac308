"""The embedded model itself: `make live` runs this where the weights are."""

import asyncio
import json
import time

import pytest

from replan.errors import ContextTooLong
from replan.messages import Text, ToolResult, user
from replan.model import Conversation, Done, ModelRequest, OutputSchema, TextDelta, ToolSpec
from replan.models.local import LocalModel
from replan.models.weights import weights_path
from replan.testing import allow_real_requests

pytestmark = [
    pytest.mark.live,
    pytest.mark.timeout(300),
    pytest.mark.skipif(weights_path() is None, reason="the weights are not here; run `replan model pull`"),
]

WEATHER = ToolSpec(
    "weather",
    "Current weather of one city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
STOCK = ToolSpec(
    "stock_price",
    "Latest price of a stock in US dollars.",
    {"type": "object", "properties": {"symbol": {"type": "string", "description": "Ticker"}}, "required": ["symbol"]},
)


@pytest.fixture(scope="module")
def model():
    with allow_real_requests():
        model = LocalModel("qwen2.5-coder-1.5b")
        yield model
        asyncio.run(model.close())


async def ask(model: LocalModel, *messages, **request: object) -> Done:
    conversation = Conversation(list(messages))
    *_, done = [delta async for delta in model.stream(ModelRequest(conversation=conversation, **request))]
    return done


def schema(**properties: object) -> OutputSchema:
    return OutputSchema("output", {"type": "object", "properties": properties, "required": list(properties)})


async def test_it_says_something_and_counts_it(model):
    done = await ask(model, user("What is the capital of France?"), max_output_tokens=20)
    assert "Paris" in done.message.text
    assert done.usage.input_tokens > 10
    assert 0 < done.usage.output_tokens <= 20


async def test_every_kind_of_schema_holds(model):
    reference = {"type": "string", "pattern": r"^\$\{[a-z0-9_]{1,32}\.[^}]{0,40}\}$"}
    output = schema(
        reference=reference,
        number={"type": "integer", "minimum": 3, "maximum": 12},
        kind={"enum": [f"kind number {number}" for number in range(60)]},
        fixed={"const": {"a": [1, None]}},
        either={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/pair"}]},
        tags={"type": "array", "items": {"type": "string", "maxLength": 8}, "minItems": 2, "maxItems": 2},
    )
    output.schema["$defs"] = {"pair": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}}
    done = await ask(model, user("Fill the form for step w1, output temperature."), output=output)
    value = json.loads(done.message.text)
    assert value["reference"].startswith("${")
    assert value["reference"].endswith("}")
    assert 3 <= value["number"] <= 12
    assert value["kind"].startswith("kind number ")
    assert value["fixed"] == {"a": [1, None]}
    assert value["either"] is None or isinstance(value["either"]["x"], (int, float))
    assert len(value["tags"]) == 2


@pytest.mark.parametrize(
    "part",
    [
        {"not": {"type": "string"}, "type": "string"},
        {"type": "string", "pattern": r"^(?=a)\bfoo"},
        {"type": "string", "format": "made-up"},
        {"type": "array", "uniqueItems": True, "items": {"type": "string"}, "minItems": 3, "maxItems": 1},
        {"anyOf": [{"enum": []}, {"type": "boolean"}]},
        {"type": "object", "patternProperties": {"^a": {"type": "string"}}, "propertyNames": {"pattern": "^a"}},
        {"$ref": "https://example.com/schema.json"},
        {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"title": "x"}]},
    ],
)
async def test_schemas_that_the_engine_does_not_know_still_give_json(model, part):
    done = await ask(model, user("Give me a value."), output=schema(value=part), max_output_tokens=60)
    assert done.finish == "length" or "value" in json.loads(done.message.text)


async def test_a_large_choice_of_calls_costs_little(model):
    words = [f"word {number} of the goal" for number in range(40)]
    branches = [
        {
            "type": "object",
            "properties": {"tool": {"const": f"tool_{number}"}, "value": {"enum": words}},
            "required": ["tool", "value"],
        }
        for number in range(60)
    ]
    output = schema(call={"anyOf": branches})
    await ask(model, user("Use tool_7 with word 3."), output=output)
    start = time.monotonic()
    done = await ask(model, user("Use tool_7 with word 5."), output=output)
    assert time.monotonic() - start < 20
    assert json.loads(done.message.text)["call"]["value"] in words


async def test_it_calls_a_tool_and_answers_from_the_result(model):
    messages = [user("How many degrees is it in Oslo?")]
    done = await ask(model, *messages, tools=(WEATHER, STOCK))
    (call,) = done.message.calls
    assert (call.name, call.arguments["city"]) == ("weather", "Oslo")
    result = ToolResult(call.call_id, call.name, (Text('{"temperature_c": -7, "sky": "snow"}'),))
    done = await ask(model, *messages, done.message, result, tools=(WEATHER, STOCK))
    assert "7" in done.message.text


async def test_a_known_prefix_is_not_read_again(model):
    rules = " ".join(f"Rule {number}: item {number} has the colour number {number * 7}." for number in range(30))
    first = await ask(model, user("Say yes."), instructions=rules, max_output_tokens=5)
    await ask(model, user("Something else."), max_output_tokens=5)
    second = await ask(model, user("Say no."), instructions=rules, max_output_tokens=5)
    assert second.usage.cached_input_tokens > first.usage.input_tokens * 0.9


async def test_leaving_a_stream_ends_it(model):
    stream = model.stream(ModelRequest(conversation=Conversation([user("Count from 1 to 500.")])))
    assert isinstance(await anext(stream), TextDelta)
    await stream.aclose()
    done = await ask(model, user("Say hi."), max_output_tokens=5)
    assert done.message.text


async def test_too_long_a_request_is_refused(model):
    with pytest.raises(ContextTooLong):
        await ask(model, user("word " * 9000))
