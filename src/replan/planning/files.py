"""Plans as files that people read and edit: YAML, or JSON.

Values are what JSON knows: `true`, `false`, `null` (or `~`, or nothing), and numbers as JSON writes them. All else is
text, so `no`, `on`, `09:30`, `2024-01-31`, `007` and `1_000` are what they look like. Written files put what older YAML
readers would take for something else in quotes. Anchors, tags and repeated fields are refused.
"""

import json
import math
import re
from difflib import get_close_matches
from functools import cache
from typing import Any, Literal, NoReturn

import msgspec

from replan.encoding import JSON, JSONObject, clean_text, decode, encode, is_list, is_object
from replan.errors import ConfigError

from .plan import Plan, PlannedCall, Step

__all__ = ["dump_plan", "load_plan", "unknown_fields"]

_MAX_DEPTH = 64
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)")
_CONSTANTS: dict[str, JSON] = {"": None, "~": None} | {
    form: value
    for name, value in (("null", None), ("true", True), ("false", False))
    for form in (name, name.title(), name.upper())
}
_ODD = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"  # what YAML takes for line ends, or refuses
    r"\u200e\u200f\u202a-\u202e\u2066-\u2069]"  # what makes a text look like another
)
_BLOCK = re.compile(r"\S.*\S|\S|")
_HINTS = (
    ("mapping values are not allowed", "a text with `: ` in it stands in quotes"),
    ("'\\t'", "indent with spaces, not tabs"),
    ("cannot start any token", "a text that begins with this character stands in quotes"),
    ("flow", "a text with a brace, bracket or comma in it stands in quotes, `${...}` too"),
    ("expected <block end>", "things that belong together are indented alike"),
    ("could not find expected ':'", "each field is written `name: value`"),
    ("special characters are not allowed", "write control characters as escapes, in double quotes"),
    ("another document", "a file holds one plan"),
)


def dump_plan(plan: Plan | JSONObject, *, form: Literal["yaml", "json"] = "yaml", goal: str | None = None) -> str:
    """The plan as text that `load_plan` reads back, exactly. Fields at their defaults are left out.

    `plan` may be the plan's JSON too; `goal` is written beside its fields.
    """
    data = plan_json(plan)
    if goal is not None:
        data = {"goal": clean_text(goal), **data}
    if form == "json":
        return json.dumps(data, ensure_ascii=False, indent=2) + "\n"
    return _write_yaml(data)


def plan_json(plan: Plan | JSONObject) -> JSONObject:
    """The plan's JSON with its fields in order, and without those at their defaults. Unknown fields come last."""
    data: JSONObject = decode(encode(plan))
    steps: list[JSON] = [_in_order(step, Step) if is_object(step) else step for step in data.get("steps") or ()]
    for step in filter(is_object, steps):
        if is_object(step.get("call")):
            step["call"] = _in_order(step["call"], PlannedCall)
    return _in_order({**data, "steps": steps}, Plan, kept="steps")


def load_plan(text: str) -> JSONObject:
    """The JSON of a plan that was written as YAML or JSON, `goal` included where there is one.

    Raises `ConfigError` that names the line and says what to do. Whether its steps can be run is not looked at.
    """
    data = _read(text.removeprefix("\ufeff"))
    if data is None:
        _refuse("it is empty; write `steps:` with a list of steps")
    if not is_object(data):
        _refuse("it is not a set of fields; write `steps:`, and the steps below it as a list")
    if not is_list(data.get("steps")):
        _refuse("it has no list `steps`; write `steps:`, and below it each step as `- id: ...` with a `description`")
    return data


def unknown_fields(data: JSON) -> list[str]:
    """Where a loaded plan has fields that plans do not have, such as `steps[2].dependson (depends_on?)`."""
    found = _unknown(data, Plan, "", "goal")
    steps: list[JSON] = (data.get("steps") if is_object(data) else None) or []
    for number, step in enumerate(steps if is_list(steps) else []):
        found += _unknown(step, Step, f"steps[{number}].")
        found += _unknown(step.get("call") if is_object(step) else None, PlannedCall, f"steps[{number}].call.")
    return found


def _unknown(data: JSON, kind: type[msgspec.Struct], place: str, *more: str) -> list[str]:
    known = [*_defaults(kind), *more]
    found: list[str] = []
    for name in data if is_object(data) else ():
        if name not in known:
            near = get_close_matches(name, known, 1)
            found.append(f"{place}{name}" + (f" ({near[0]}?)" if near else ""))
    return found


@cache
def _defaults(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The fields as they are written, with their defaults as JSON; `NODEFAULT` where a field has none."""
    fields = msgspec.structs.fields(kind)
    made = {f.encode_name: f.default if f.default_factory is msgspec.NODEFAULT else f.default_factory() for f in fields}
    return {name: [] if value == () else value for name, value in made.items()}


def _in_order(data: JSONObject, kind: type[msgspec.Struct], kept: str = "") -> JSONObject:
    defaults = _defaults(kind)
    known = {name: data[name] for name in defaults if name in data}
    written = {name: value for name, value in known.items() if name == kept or not _same(value, defaults[name])}
    return written | {name: value for name, value in data.items() if name not in defaults}


def _same(value: JSON, default: JSON) -> bool:
    return type(value) is type(default) and value == default


# ---- reading


def _read(text: str) -> JSON:
    if re.match(r'\s*\{\s*(?:"|\})', text):
        try:
            return _checked(json.loads(text, object_pairs_hook=_pairs, parse_constant=_no_constant, parse_int=_number))
        except json.JSONDecodeError as error:
            _refuse(f"line {error.lineno}, column {error.colno}: {error.msg}", "mend it there", error)
        except _RepeatedKeyError as error:
            _read_yaml(text.replace("\t", " "))  # knows the line
            _refuse(str(error))
        except RecursionError as error:
            _refuse(f"it is nested deeper than {_MAX_DEPTH} levels", cause=error)
    return _checked(_read_yaml(text))


class _RepeatedKeyError(Exception):
    pass


def _pairs(pairs: list[tuple[str, JSON]]) -> JSONObject:
    data: JSONObject = {}
    for name, value in pairs:
        if name in data:
            raise _RepeatedKeyError(f"the field {name!r} is there twice; leave one out")
        data[name] = value
    return data


def _no_constant(name: str) -> NoReturn:
    _refuse(f"{name} is no value that a plan can hold; write null, or a text in quotes")


def _number(text: str) -> JSON:
    """A number that JSON can carry, else its text."""
    if _INT.fullmatch(text) and len(text) <= 20 and -(2**63) <= int(text) < 2**64:
        return int(text)
    value = float(text) if _FLOAT.fullmatch(text) else math.inf
    return value if math.isfinite(value) else text


def _checked(value: JSON, depth: int = 0) -> JSON:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        _refuse("it holds a number that is too large; write it as a text, in quotes")
    if depth > _MAX_DEPTH:
        _refuse(f"it is nested deeper than {_MAX_DEPTH} levels")
    if is_list(value):
        return [_checked(item, depth + 1) for item in value]
    if is_object(value):
        return {clean_text(name): _checked(item, depth + 1) for name, item in value.items()}
    return value


def _refuse(reason: str, then: str = "", cause: BaseException | None = None) -> NoReturn:
    raise ConfigError(f"the plan cannot be read: {reason}{'; ' if then else ''}{then}") from cause


def _read_yaml(text: str) -> JSON:
    import yaml

    try:
        loader = _loader()(text)
        node = loader.get_single_node()
        return None if node is None else _value(node)
    except yaml.MarkedYAMLError as error:
        reason = f"{error.context or ''} {error.problem or ''}".strip()
        _refuse(f"{_place(error.problem_mark or error.context_mark)}{reason}", _hint(reason), error)
    except yaml.YAMLError as error:
        reason = str(error).splitlines()[0]
        line = text.count("\n", 0, getattr(error, "position", 0)) + 1
        _refuse(f"line {line}: {reason}", _hint(reason), error)
    except RecursionError as error:
        _refuse(f"it is nested deeper than {_MAX_DEPTH} levels", cause=error)


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""


def _hint(reason: str) -> str:
    return next((hint for words, hint in _HINTS if words in reason), "mend it there")


@cache
def _loader() -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {}  # noqa: RUF012  # as the library has it

        def compose_node(self, parent: Any, index: Any) -> Any:
            _look_at(self.peek_event())  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
            return super().compose_node(parent, index)

    return Loader


def _look_at(event: Any) -> None:
    place, tag = _place(event.start_mark), getattr(event, "tag", None)
    if getattr(event, "anchor", None):
        _refuse(f"{place}anchors and aliases (& and *) are not used in plans", "write it out")
    if tag:
        _refuse(f"{place}the tag {tag!r} is not used in plans", "leave it out")


def _value(node: Any) -> JSON:
    """The JSON of a YAML node."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        return _fields(node)
    if isinstance(node, yaml.SequenceNode):
        return [_value(item) for item in node.value]
    if node.style is not None:
        return node.value
    return _CONSTANTS[node.value] if node.value in _CONSTANTS else _number(node.value)


def _fields(node: Any) -> JSONObject:
    import yaml

    data: JSONObject = {}
    for key, item in node.value:
        if not isinstance(key, yaml.ScalarNode):
            _refuse(f"{_place(key.start_mark)}a field's name is a text", "put it in quotes")
        if key.value in data:
            _refuse(f"{_place(key.start_mark)}the field {key.value!r} is there twice", "leave one out")
        data[key.value] = _value(item)
    return data


# ---- writing


def _write_yaml(data: JSONObject) -> str:
    import yaml

    return yaml.dump(data, Dumper=_dumper(), allow_unicode=True, sort_keys=False, default_flow_style=False, width=110)


def _style(text: str) -> str | None:
    if _ODD.search(text):
        return '"'
    return "|" if "\n" in text.strip() and all(map(_BLOCK.fullmatch, text.split("\n"))) else None


@cache
def _dumper() -> Any:
    import yaml

    class Dumper(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:
            return True

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

        def write_double_quoted(self, text: str, split: bool = True) -> None:
            self.allow_unicode = not _ODD.search(text)  # what is odd is written as an escape
            super().write_double_quoted(text, split)
            self.allow_unicode = True

    def text(dumper: Any, value: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, _style(value))

    Dumper.add_representer(str, text)
    for tag, pattern, first in (("float", _FLOAT, "-0123456789"), ("int", _INT, "-0123456789")):
        add: Any = Dumper.add_implicit_resolver  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        add(f"tag:yaml.org,2002:{tag}", re.compile(f"(?:{pattern.pattern})$"), list(first))
    return Dumper
