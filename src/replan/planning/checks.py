"""What a finished step must fulfil, by its outputs: `{"result": ...}` unless the step names them.

A check is `{"schema": JSON schema (2020-12) of the outputs}`, `{"expression": JMESPath over the outputs}`, which must
give exactly true (a bare text is this), `{"function": name of a function of the host}`, or `{"call": {"tool",
"arguments"}, "expect": value}`, a tool call whose result is compared. The last is made by the loop, as any tool call;
`as_expected` judges it.
"""

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from replan.durable import StepContext, durable_step
from replan.effects import Services
from replan.encoding import JSON, JSONObject, decode, encode, is_list, is_object, normalise
from replan.tools.threads import run_in_thread

__all__ = ["as_expected", "check_outputs", "mismatch", "problems"]

SECONDS = 60.0
"""How long a function of the host may take."""

_FORMS = ("schema", "expression", "function", "call")
_MAX_SHOWN = 300
_ENDLESS = re.compile(r"(?<!\\)[+*}]\)+(?:[+*]|\{\d*,)")


def problems(check: JSON) -> list[str]:
    """What is wrong with a check whatever the outputs will be, one sentence each; none for null, which checks nothing.

    Whether a function or tool of that name exists is not looked at.
    """
    check = _as_object(check)
    if check is None:
        return []
    forms = [name for name in _FORMS if name in check] if is_object(check) else []
    if len(forms) != 1:
        return [f"a check is an object with one of {', '.join(_FORMS)}, or a JMESPath text, not {_shown(check)}"]
    form = forms[0]
    allowed = {"call", "expect"} if form == "call" else {form}
    said = [f"a check with {form!r} takes no {name!r}" for name in check if name not in allowed]
    return said + _PROBLEMS[form](check[form])


@durable_step("check")
async def check_outputs(ctx: StepContext, args: JSONObject) -> JSON:
    """Null where the outputs of a step fulfil its check, else why they do not.

    `args` has the `check`, which is not of the form `call`, and the `outputs`.
    """
    services: Services = ctx.services
    check, outputs = _as_object(args["check"]), args["outputs"]
    if check is None:
        return None
    if found := problems(check):
        reason = "; ".join(found)
    elif "schema" in check:
        reason = mismatch(check["schema"], outputs)
    elif "expression" in check:
        reason = _by_expression(check["expression"], outputs)
    elif "function" in check:
        reason = await _by_function(check["function"], outputs, services.functions)
    else:
        raise ValueError("a check that is a tool call is made by the loop")
    return None if reason is None else f"the check failed: {reason}"


def as_expected(value: JSON, expect: JSON = None) -> str | None:
    """Why the result of a tool call is not as expected; None where it is, and where nothing is expected (null).

    Objects have at least the fields expected, recursively; integers and floats may be equal; a text that is JSON is
    read where an object or a list is expected.
    """
    return None if expect is None else _difference(value, expect, "the result")


def _difference(value: JSON, expect: JSON, path: str) -> str | None:
    if isinstance(value, str) and (is_object(expect) or is_list(expect)):
        value = _decoded(value)
    if is_object(expect) and is_object(value):
        for key, wanted in expect.items():
            if key not in value:
                return f"{path} has no {key!r}, only {_shown(list(value))}"
            if reason := _difference(value[key], wanted, f"{key!r} of {path}"):
                return reason
        return None
    if is_list(expect) and is_list(value) and len(expect) == len(value):
        pairs = enumerate(zip(value, expect, strict=True))
        return next((why for i, (a, b) in pairs if (why := _difference(a, b, f"[{i}] of {path}"))), None)
    alike = value == expect and isinstance(value, bool) == isinstance(expect, bool)
    return None if alike else f"{path} is {_shown(value)}, not {_shown(expect)}"


def _as_object(check: JSON) -> JSON:
    return {"expression": check} if isinstance(check, str) else check


def _shown(value: JSON) -> str:
    text = encode(value).decode(errors="replace")
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 3]}..."


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:_MAX_SHOWN]}" if lines else type(error).__name__


def _decoded(text: str) -> JSON:
    try:
        return decode(text)
    except ValueError:
        return text


def _validator(schema: JSON) -> Any:
    """A validator of the schema, which fetches nothing. Raises where the schema is none."""
    from jsonschema import Draft202012Validator
    from referencing import Registry

    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, registry=cast("Any", Registry)())


def _schema_problems(schema: JSON) -> list[str]:
    try:
        _validator(schema)
    except Exception as error:  # noqa: BLE001  # whatever the library finds wrong with it
        return [f"the 'schema' of the check is no JSON schema: {_first_line(error)}"]
    return [_endless_text(pattern) for pattern in _endless_patterns(schema)]


def _endless_text(pattern: str) -> str:
    return f"the pattern {pattern!r} may take forever: it repeats a group that ends in a repetition; write it otherwise"


def _endless_patterns(schema: JSON) -> list[str]:
    """Patterns that may take forever: a repeated group with a repetition inside."""
    if is_list(schema):
        return [found for item in schema for found in _endless_patterns(item)]
    if not is_object(schema):
        return []
    named: JSON = schema.get("patternProperties")
    given = [schema.get("pattern"), *(named if is_object(named) else ())]
    own = [text for text in given if isinstance(text, str) and _ENDLESS.search(text)]
    return own + [found for item in schema.values() for found in _endless_patterns(item)]


def mismatch(schema: JSON, outputs: JSON) -> str | None:
    """In what a value does not fit a JSON schema, the outermost place first; None where it fits."""
    if found := _endless_patterns(schema):
        return f"the schema cannot be applied: {_endless_text(found[0])}"
    try:
        errors = sorted(_validator(schema).iter_errors(outputs), key=lambda error: len(error.absolute_path))
    except Exception as error:  # noqa: BLE001  # a reference that leads nowhere, an endless one, ...
        return f"the schema cannot be applied: {_first_line(error)}"
    if not errors:
        return None
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in errors[0].absolute_path)
    where = f"{path.removeprefix('.')}: " if path else ""
    return f"{where}{str(errors[0].message)[:_MAX_SHOWN]}"


def _compiled(expression: str) -> Any:
    """The JMESPath expression. Raises where it is none."""
    import jmespath

    return jmespath.compile(expression)


def _expression_problems(expression: JSON) -> list[str]:
    if not isinstance(expression, str):
        return [f"the 'expression' of the check is a JMESPath text, not {_shown(expression)}"]
    try:
        _compiled(expression)
    except Exception as error:  # noqa: BLE001  # whatever the library finds wrong with it
        hint = "; it is written like length(result.items) > `0`, literals in backticks"
        return [
            f"the 'expression' of the check, {expression[:_MAX_SHOWN]!r}, is no JMESPath: {_first_line(error)}{hint}"
        ]
    return []


def _by_expression(expression: str, outputs: JSON) -> str | None:
    try:
        value = _compiled(expression).search(outputs)
    except Exception as error:  # noqa: BLE001  # functions of the language raise for values of the wrong type
        return f"{expression!r} cannot be applied: {_first_line(error)}"
    return None if value is True else f"{expression!r} is {_shown(value)}, not true"


def _function_problems(name: JSON) -> list[str]:
    fine = isinstance(name, str) and name
    return [] if fine else [f"the 'function' of the check is the name of a function of the host, not {_shown(name)}"]


async def _by_function(name: str, outputs: JSON, functions: Mapping[str, Callable[..., Any]]) -> str | None:
    function = functions.get(f"check:{name}")
    if function is None:
        known = [key.removeprefix("check:") for key in functions if key.startswith("check:")]
        return f"there is no check function {name!r}; there are {', '.join(map(repr, known)) or 'none'}"
    limit = asyncio.timeout(SECONDS)
    try:
        async with limit:
            answer = await _ask(function, decode(encode(outputs)))  # its own copy: it may change it
    except TimeoutError as error:
        return (
            f"{name!r} took longer than {SECONDS:g} s" if limit.expired() else f"{name!r} raised {_first_line(error)}"
        )
    except (Exception, SystemExit) as error:  # noqa: BLE001  # what a function of the host raises is about this step only
        return f"{name!r} raised {_first_line(error)}"
    return _answer(name, normalise(answer))


async def _ask(function: Callable[..., Any], outputs: JSON) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(outputs)
    answer = await run_in_thread(lambda: function(outputs), threading.Event())
    return await answer if inspect.isawaitable(answer) else answer


def _answer(name: str, answer: JSON) -> str | None:
    if answer is None or answer is True:
        return None
    if answer is False:
        return f"{name!r} does not hold"
    if isinstance(answer, str):
        return f"{name!r}: {answer}"
    return f"{name!r} gave {_shown(answer)}; a check gives true, null, false or a reason as text"


def _call_problems(call: JSON) -> list[str]:
    named = is_object(call) and isinstance(call.get("tool"), str) and call["tool"]
    if named and call.keys() <= {"tool", "arguments"} and is_object(call.get("arguments", {})):
        return []
    return [f'the \'call\' of the check is {{"tool": name, "arguments": {{...}}}}, not {_shown(call)}']


_PROBLEMS: dict[str, Callable[[JSON], list[str]]] = {
    "schema": _schema_problems,
    "expression": _expression_problems,
    "function": _function_problems,
    "call": _call_problems,
}
