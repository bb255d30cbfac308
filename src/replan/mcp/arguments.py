"""Checking arguments against a tool's own schema, and leaving out the nulls that it does not want."""

import functools
import logging
import re
from collections.abc import Iterable
from typing import Any, cast

from replan.encoding import JSON, JSONObject, encode

__all__ = ["ArgumentSchema"]

_log = logging.getLogger("replan.mcp")

_MOST_PROBLEMS = 8
_SHOWN = 80
_DEEPEST = 32


class ArgumentSchema:
    """A tool's input schema, compiled on first use. One that cannot be used checks nothing, and is logged once."""

    def __init__(self, schema: JSONObject, tool: str) -> None:
        self._schema = schema
        self._tool = tool
        self._usable = True

    def problems(self, arguments: JSONObject) -> list[str]:
        """What is wrong, one short text for each parameter; empty where nothing is."""
        validator = self._validator
        if validator is None:
            return []
        try:
            errors = list(validator.iter_errors(arguments))
        except Exception as error:  # noqa: BLE001  # an unresolvable reference, a pattern of another dialect, endless recursion
            self._give_up(error)
            return []
        texts = dict.fromkeys(
            _describe(error) for error in sorted(errors, key=lambda error: list(map(str, error.path)))
        )
        return list(texts)[:_MOST_PROBLEMS]

    def prune(self, arguments: JSONObject) -> JSONObject:
        """The arguments without the optional parameters that are null where the schema does not allow null."""
        if not _holds_null(arguments):
            return arguments
        return cast("JSONObject", self._prune(arguments, self._schema, _DEEPEST))

    def _prune(self, value: JSON, schema: JSON, depth: int) -> JSON:
        if depth <= 0:
            return value
        shapes = list(self._shapes(schema, depth))
        if isinstance(value, list):
            items = next((shape["items"] for shape in shapes if isinstance(shape.get("items"), dict)), True)
            return [self._prune(item, items, depth - 1) for item in cast("list[Any]", value)]
        if not isinstance(value, dict):
            return value
        known: JSONObject = {}
        required = set[str]()
        for shape in shapes:
            known = {**shape.get("properties", {}), **known}
            required |= set(shape.get("required", ()))
        return {
            key: self._prune(item, known.get(key, True), depth - 1)
            for key, item in cast("JSONObject", value).items()
            if item is not None or key in required or key not in known or self._takes_null(known[key])
        }

    def _shapes(self, schema: JSON, depth: int) -> Iterable[JSONObject]:
        """The schema and those that it is made of: the target of a reference, and the branches of unions."""
        if not isinstance(schema, dict) or depth <= 0:
            return
        shape = cast("JSONObject", schema)
        yield shape
        if isinstance(target := shape.get("$ref"), str):
            yield from self._shapes(_local(self._schema, target), depth - 1)
        for key in ("allOf", "anyOf", "oneOf"):
            for branch in shape.get(key, ()):
                yield from self._shapes(branch, depth - 1)

    def _takes_null(self, schema: JSON) -> bool:
        validator = self._validator
        if validator is None:
            return True
        try:
            return validator.evolve(schema=schema).is_valid(None)
        except Exception as error:  # noqa: BLE001  # as above
            self._give_up(error)
            return True

    @functools.cached_property
    def _compiled(self) -> Any:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for
        from referencing import Registry

        try:
            kind: Any = validator_for(self._schema, default=Draft202012Validator)
            kind.check_schema(self._schema)
            # An empty registry: references stay within the schema, nothing is fetched.
            return kind(self._schema, registry=cast("Any", Registry)())
        except Exception as error:  # noqa: BLE001  # a server can send anything
            self._give_up(error)
            return None

    @property
    def _validator(self) -> Any:
        return self._compiled if self._usable else None

    def _give_up(self, error: Exception) -> None:
        if self._usable:
            self._usable = False
            reason = str(error).splitlines()[0] if str(error) else ""
            _log.warning(
                "the input schema of tool %r cannot be used, its arguments are not checked: %s: %s",
                self._tool,
                type(error).__name__,
                reason[:200],
            )


def _holds_null(value: JSON) -> bool:
    if isinstance(value, dict):
        return any(_holds_null(item) for item in cast("JSONObject", value).values())
    if isinstance(value, list):
        return any(_holds_null(item) for item in cast("list[Any]", value))
    return value is None


def _local(root: JSONObject, reference: str) -> JSON:
    """The part of the schema that a reference such as `#/$defs/Point` names; True, which allows all, where there is
    none.
    """
    if not reference.startswith("#"):
        return True
    found: Any = root
    for step in filter(None, reference[1:].split("/")):
        key = step.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, dict) or key not in found:
            return True
        found = cast("JSONObject", found)[key]
    return found


def _describe(error: Any) -> str:
    name = _path(error.absolute_path)
    where = repr(name) if name else "the arguments"
    match error.validator:
        case "required":
            return _missing(error, name)
        case "additionalProperties" | "unevaluatedProperties":
            return f"{where}: {_unknown(error)}"
        case "type" | "anyOf" | "oneOf" | "enum" | "const":
            return f"{where}: expected {_expected(error.schema)}, got {_short(error.instance)}"
        case _:
            return f"{where}: {str(error.message)[:200]}"


def _missing(error: Any, parent: str) -> str:
    match = re.match(r"'(.+)' is a required property", error.message)
    name = match[1] if match else "?"
    schema = error.schema.get("properties", {}).get(name, True)
    return f"{'.'.join(filter(None, (parent, name)))!r}: missing; expected {_expected(schema)}"


def _unknown(error: Any) -> str:
    known = error.schema.get("properties", {})
    unknown = sorted(set(error.instance) - set(known))
    listed = ", ".join(map(repr, known)) or "none"
    return f"unknown parameters {', '.join(map(repr, unknown))}; known are {listed}"[:300]


def _path(steps: Iterable[str | int]) -> str:
    text = ""
    for step in steps:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


def _expected(schema: Any) -> str:
    """What a schema wants, in a few words."""
    if not isinstance(schema, dict):
        return "a value"
    shape = cast("JSONObject", schema)
    if "const" in shape:
        return _short(shape["const"])
    if isinstance(shape.get("enum"), list):
        return "one of " + ", ".join(map(_short, shape["enum"][:20]))
    if "type" in shape:
        kinds: Any = shape["type"]
        return " or ".join(cast("list[str]", kinds)) if isinstance(kinds, list) else str(kinds)
    branches = shape.get("anyOf") or shape.get("oneOf") or ()
    return " or ".join(dict.fromkeys(map(_expected, branches))) or str(shape.get("$ref", "a value")).rsplit("/", 1)[-1]


def _short(value: JSON) -> str:
    text = encode(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
