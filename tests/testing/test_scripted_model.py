import asyncio

import pytest

from replan.messages import Assistant, Refusal, Text, Thinking, ToolCall, user
from replan.model import CallDelta, Conversation, Delta, Done, Model, ModelRequest, Retry, TextDelta, ThinkingDelta
from replan.testing import ScriptedModel, ScriptExhausted, call
from replan.usage import Usage


async def play(model: ScriptedModel, **request: object) -> list[Delta]:
    asked = ModelRequest(conversation=Conversation([user("go")]), **request)  # type: ignore[arg-type]
    return [delta async for delta in model.stream(asked)]


async def test_text_is_streamed_word_by_word_and_comes_whole_with_done():
    model = ScriptedModel("One two  three.\n")
    *deltas, last = await play(model)
    assert deltas == [TextDelta("One"), TextDelta(" two"), TextDelta("  three.\n")]
    assert last == Done(
        Assistant((Text("One two  three.\n"),)), Usage(input_tokens=100, output_tokens=10, model_calls=1), "stop"
    )


async def test_calls_get_ids_that_are_unique_over_the_whole_script():
    model = ScriptedModel([call("a", x=1), call("b")], ["text first", call("a")], ToolCall("own", "c", {}))
    messages = [(await play(model))[-1].message for _ in range(3)]  # type: ignore[union-attr]
    assert [c.call_id for m in messages for c in m.calls] == ["call_1", "call_2", "call_3", "own"]
    assert messages[0].calls[0].arguments == {"x": 1}
    assert messages[1].text == "text first"


async def test_call_deltas_join_to_the_arguments():
    deltas = await play(ScriptedModel([call("a", x=1)]))
    assert "".join(d.arguments for d in deltas if isinstance(d, CallDelta)) == '{"x":1}'
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].finish == "tool_calls"


async def test_a_call_can_have_an_argument_called_name():
    assert call("find", name="Ann").arguments == {"name": "Ann"}


async def test_thinking_and_refusal_parts_have_their_deltas_and_finish():
    deltas = await play(ScriptedModel([Thinking("hm well"), Refusal("no")]))
    assert deltas[:2] == [ThinkingDelta("hm"), ThinkingDelta(" well")]
    assert isinstance(deltas[-1], Done)
    assert deltas[-1].finish == "refusal"
    assert deltas[-1].message.refusal == "no"


async def test_a_done_chooses_usage_and_finish():
    done = Done(Assistant((Text("cut"),)), Usage(output_tokens=7), "length")
    assert await play(ScriptedModel(done)) == [TextDelta("cut"), done]


async def test_deltas_are_played_as_they_are():
    script = [TextDelta("x"), Retry(1, "broke", 0.0), Done(Assistant(()), Usage(), "stop")]
    assert await play(ScriptedModel(script)) == script


async def test_an_exception_is_raised_and_the_script_goes_on():
    model = ScriptedModel(ConnectionError("down"), "up")
    with pytest.raises(ConnectionError, match="down"):
        await play(model)
    assert isinstance((await play(model))[-1], Done)


async def test_functions_of_the_request_choose_the_reply():
    async def later(request: ModelRequest) -> str:
        await asyncio.sleep(0)
        return f"later: {request.instructions}"

    model = ScriptedModel(lambda request: request.instructions.upper(), later)
    first, second = (await play(model, instructions="plan"))[-1], (await play(model, instructions="act"))[-1]
    assert isinstance(first, Done)
    assert isinstance(second, Done)
    assert (first.message.text, second.message.text) == ("PLAN", "later: act")


async def test_requests_keep_the_messages_of_their_time():
    model, conversation = ScriptedModel("a", "b"), Conversation([user("1")])
    for text in ("2", "3"):
        async for _ in model.stream(ModelRequest(conversation=conversation)):
            pass
        conversation.messages.append(user(text))
    assert [len(request.conversation.messages) for request in model.requests] == [1, 2]
    assert model.remaining == 0


async def test_an_exhausted_script_says_how_long_it_was():
    model = ScriptedModel("only")
    await play(model)
    with pytest.raises(ScriptExhausted, match=r"1 replies"):
        await play(model)


async def test_otherwise_is_played_after_the_script():
    model = ScriptedModel("first", otherwise="again")
    texts = [(await play(model))[-1].message.text for _ in range(3)]  # type: ignore[union-attr]
    assert texts == ["first", "again", "again"]


def test_it_is_a_model_with_the_given_name():
    model = ScriptedModel(name="scripted:planner")
    assert isinstance(model, Model)
    assert model.name == "scripted:planner"
