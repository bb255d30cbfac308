"""One call of the embedded model: what it is asked, and what its reply means."""

from dataclasses import dataclass, replace
from functools import cached_property

from replan.encoding import JSON, JSONObject, decode, encode
from replan.messages import Assistant, Message, Text, ToolCall, ToolResult, User
from replan.model import FinishReason, ModelRequest, ToolSpec

from ._local_schema import clean, grammar
from ._local_tools import AnswerText, answer_name, calls_so_far, chat, read_call, reply_schema, tool_guide, untried

__all__ = ["Ask", "Reply", "first_ask", "next_ask"]

_TEXT: JSONObject = {"type": "string"}
_GOAL_SHOWN = 400  # characters
_CLOSING = "The request was:"


@dataclass(frozen=True)
class Ask:
    """What one reply may be: a call of one of `tools`, an answer of the schema `answer`, or free text without either.

    `repeated` is set when the model has just repeated a call, `final` when only an answer is left, `strict` is unset
    when the engine refused the schema.
    """

    request: ModelRequest
    tools: tuple[ToolSpec, ...] = ()
    answer: JSONObject | None = None
    repeated: bool = False
    final: bool = False
    strict: bool = True

    @cached_property
    def schema(self) -> JSONObject | None:
        """The cleaned schema of the reply."""
        if self.wrapped:
            return reply_schema(self.tools, answer=self.answer, name=self.answer_name, strict=self.strict)
        return None if self.answer is None else clean(self.answer, strict=self.strict)

    @property
    def answer_name(self) -> str:
        """What the answer is called among the request's tools."""
        return answer_name(self.request.tools)

    @property
    def wrapped(self) -> bool:
        """Whether the reply is an object with a tool or an answer in it."""
        return bool(self.tools) or self.final

    def grammar(self) -> str:
        """The schema as a grammar of the engine."""
        assert self.schema is not None
        return grammar(self.schema)

    def messages(self, request: ModelRequest) -> list[JSONObject]:
        """The chat that the engine is given."""
        messages = request.conversation.messages
        instructions = request.instructions
        if not self.wrapped:
            return chat(messages, instructions)
        guide = tool_guide(request.tools, None if request.tool_choice == "required" else self.answer_name)
        return chat(messages, f"{instructions}\n\n{guide}".strip(), self._closing(messages))

    def _closing(self, messages: list[Message]) -> str:
        """What stands last, after results: the wording that lets such a model neither stop early nor go on for ever."""
        goal = next((message for message in reversed(messages) if isinstance(message, User)), None)
        if goal is None or not isinstance(messages[-1], ToolResult):
            return ""
        text = "\n".join(part.text for part in goal.content if isinstance(part, Text))
        if self.final:
            return f"Answer this from the results above, in a full sentence: {text[:_GOAL_SHOWN]}"
        failed = {message.call_id for message in messages if isinstance(message, ToolResult) and message.is_error}
        made = ", ".join(_described(call, call.call_id in failed) for call in calls_so_far(messages))
        repeated = " The last call was made before and its result is above: do not repeat it." if self.repeated else ""
        return (
            f"{_CLOSING} {text[:_GOAL_SHOWN]}\nResults so far: {made}.{repeated}\n"
            "Call one more tool if anything it asks for has no result yet. "
            f"If all has, use {self.answer_name}, with the values from the results in a full sentence."
        )


class Reply:
    """A reply as it comes."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._text = ""
        self._answer = AnswerText(ask.answer_name)
        self.length = False
        self.shown = False
        self.refused = False
        self.echoed = False
        self._held = ""

    def feed(self, piece: str) -> str:
        """Take in a piece; gives the text to show. Sets `refused` when the engine does not keep to the schema."""
        self._text += piece
        if self._ask.schema is not None and not _begins(self._text, self._ask.schema):
            self.refused = True
            return ""
        text = self._held + (self._answer.feed(piece) if self._ask.wrapped else piece)
        self.echoed = self._ask.wrapped and not self._ask.final and text.startswith(_CLOSING) and not self.shown
        if self._ask.wrapped and not self.shown and _CLOSING.startswith(text):
            self._held, text = text, ""
        elif self.echoed:
            text = ""
        else:
            self._held = ""
        self.shown = self.shown or bool(text)
        return text

    def rest(self) -> str:
        """What was held back until it was clear that it is no echo."""
        held, self._held = self._held, ""
        return held

    @cached_property
    def value(self) -> JSON:
        """The reply as JSON; None while it is none."""
        try:
            return decode(self._text)
        except ValueError:
            return None

    @cached_property
    def call(self) -> ToolCall | None:
        """The tool call that the reply is, unless it is the answer."""
        call = self._offered
        return None if call is None or call.name == self._ask.answer_name else call

    @cached_property
    def _offered(self) -> ToolCall | None:
        return read_call(self.value) if self._ask.wrapped else None

    def result(self) -> tuple[Assistant, FinishReason]:
        """The reply as a message."""
        if not self._ask.wrapped:
            return _said(self._text), "length" if self.length else "stop"
        if self.call is not None:
            return Assistant((self.call,)), "tool_calls"
        if self._offered is not None:
            answer = self._offered.arguments.get("text", "")
            return _said(answer if isinstance(answer, str) else encode(answer).decode()), "stop"
        return _said(AnswerText(self._ask.answer_name).feed(self._text)), "length"


def first_ask(request: ModelRequest) -> Ask:
    """What to ask at first."""
    answer = request.output.schema if request.output is not None else None
    if not request.tools or request.tool_choice == "none":
        return Ask(request, answer=answer)
    tools = untried(request.tools, calls_so_far(request.conversation.messages))
    if request.tool_choice == "required":
        return Ask(request, tuple(tools) or request.tools)
    if not tools:
        return Ask(request, answer=answer or _TEXT, final=True)
    return Ask(request, tuple(tools), answer or _TEXT)


def next_ask(request: ModelRequest, ask: Ask, reply: Reply) -> Ask | None:
    """What to ask after this reply, if it is not good.

    A call that was made before is asked to be another one; when it comes again, or when the answer only echoes what was
    asked, nothing but an answer is left.
    """
    if reply.refused:
        return replace(ask, strict=False) if ask.strict else None
    repeats = reply.call is not None and _made_before(reply.call, request)
    if repeats and not ask.repeated:
        return replace(ask, repeated=True)
    if (repeats or reply.echoed) and ask.answer is not None and not ask.final:
        return replace(ask, tools=(), final=True)
    return None


def _made_before(call: ToolCall, request: ModelRequest) -> bool:
    made = calls_so_far(request.conversation.messages)
    return any((call.name, call.arguments) == (other.name, other.arguments) for other in made)


def _described(call: ToolCall, failed: bool) -> str:
    return f"{call.name}({', '.join(map(_short, call.arguments.values()))}){' failed' if failed else ''}"


def _short(value: JSON) -> str:
    text = value if isinstance(value, str) else encode(value).decode()
    return text if len(text) <= 40 else f"{text[:39]}…"


def _begins(text: str, schema: JSONObject) -> bool:
    start = text.lstrip()[:1]
    return not start or start in ("{" if schema.get("type") == "object" else '{["-0123456789tfn')


def _said(text: str) -> Assistant:
    return Assistant((Text(text),) if text else ())
