"""JSON schemas of functions, and typed values from JSON: the only module that knows pydantic.

pydantic is imported when the first schema is asked for, so that decorating a function costs nothing.
"""

import functools
import inspect
import re
import types
import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, cast

from replan.encoding import JSON, JSONObject, encode, normalise
from replan.errors import ConfigError
from replan.messages import Audio, File, Image, Text
from replan.tool import InvalidArguments, ToolContext, ToolOutput

from ._docstring import read_docstring
from ._problems import read_problems
from ._typed_dicts import readable

__all__ = ["CallSchema", "check_signature", "read_function"]

AnyFunction: TypeAlias = Callable[..., Any]
_Parameter: TypeAlias = inspect.Parameter
_REFUSED = {
    _Parameter.VAR_POSITIONAL: "give it as one parameter that is a list",
    _Parameter.VAR_KEYWORD: "give it as one parameter that is a dict",
    _Parameter.POSITIONAL_ONLY: "take the '/' out of the signature, since tools are called by keyword",
}
_CONTEXT_TEXT = re.compile(r"(\w+\.)*ToolContext(\[.*\])?(\s*\|\s*None)?")
_STREAMS = (Generator, Iterator, Iterable, AsyncGenerator, AsyncIterator, AsyncIterable)
_NO_SCHEMA = (Any, None, type(None), object, bytes, bytearray, memoryview, ToolOutput, Text, Image, Audio, File)


@dataclass(frozen=True, slots=True)
class CallSchema:
    """How a function is called with JSON. `contexts` are the parameters that take the `ToolContext`."""

    description: str
    parameters: JSONObject
    output: JSONObject | None
    contexts: tuple[str, ...]
    validator: Any
    targets: tuple[tuple[str, str, bool], ...]
    """Field of the validator's model, parameter of the function, whether it is passed even where it was not given."""

    def values(self, arguments: JSONObject) -> dict[str, Any]:
        """The typed values for the function. Raises `InvalidArguments`."""
        try:
            model = self.validator.validate_json(encode(arguments), strict=True)
        except Exception as error:  # noqa: BLE001  # a validator of the user's own may raise anything
            raise InvalidArguments(read_problems(error, arguments, self.parameters)) from None
        given, fields = model.__pydantic_fields_set__, model.__dict__
        return {name: fields[field] for field, name, always in self.targets if always or field in given}


def check_signature(function: AnyFunction, tool_name: str, *, method: bool = False) -> list[_Parameter]:
    """The parameters that a model can fill. Raises `ConfigError` for a signature that cannot be called by keyword."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(f"the signature of tool {tool_name!r} cannot be read ({error}): wrap it in a def") from None
    bound: dict[str, Any] = function.keywords if isinstance(function, functools.partial) else {}
    parameters = [p for p in parameters[1 if method else 0 :] if p.name not in bound]
    for parameter in parameters:
        if parameter.kind in _REFUSED:
            advice = _REFUSED[parameter.kind]
            raise ConfigError(f"no model can fill parameter {str(parameter)!r} of tool {tool_name!r}: {advice}")
    return parameters


def read_function(
    function: AnyFunction, tool_name: str, local_names: dict[str, Any] | None = None, *, method: bool = False
) -> CallSchema:
    """The schema of a function, from its annotations and docstring. Raises `ConfigError`, naming the parameter.

    `local_names` resolve annotations that are text. With `method` the first parameter is left out.
    """
    plain = _innermost(function)
    names = (getattr(plain, "__globals__", {}), local_names)
    parameters = check_signature(function, tool_name, method=method)
    hints = {p.name: _resolve(p, tool_name, names) for p in parameters}
    description, described = read_docstring(_docstring(function, plain))
    contexts = tuple(name for name, hint in hints.items() if _is_context(hint))
    filled = [p for p in parameters if p.name not in contexts]
    fields = {f"p{i}": _field(p, hints[p.name], described.get(p.name)) for i, p in enumerate(filled)}
    validator, schema = _model(tool_name, fields, {p.name: hints[p.name] for p in filled})
    targets = tuple((f"p{i}", p.name, _always(p)) for i, p in enumerate(filled))
    returned = inspect.signature(function).return_annotation
    return CallSchema(description, schema, _output_schema(returned, names), contexts, validator, targets)


def _innermost(function: Any) -> Any:
    """The plain function inside partials, methods, wrappers and callable objects."""
    for attribute in ("func", "__func__", "__wrapped__"):
        inner = getattr(function, attribute, None)
        if inner is not None and callable(inner):
            return _innermost(inner)
    return function if hasattr(function, "__globals__") or isinstance(function, type) else type(function).__call__


def _docstring(function: AnyFunction, plain: AnyFunction) -> str | None:
    if isinstance(function, functools.partial):  # the class's own docstring says nothing of the tool
        return plain.__doc__
    return function.__doc__ or plain.__doc__


def _evaluate(annotation: Any, names: tuple[dict[str, Any], dict[str, Any] | None]) -> Any:
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    return readable(typing.get_type_hints(holder, names[0], names[1], include_extras=True)["it"])


def _resolve(parameter: _Parameter, tool_name: str, names: tuple[dict[str, Any], dict[str, Any] | None]) -> Any:
    annotation = parameter.annotation
    if annotation is _Parameter.empty:
        return Any
    try:
        hint = _evaluate(annotation, names)
        # pydantic gives lazily checked items for an Iterable
        return list[typing.get_args(hint)] if typing.get_origin(hint) is Iterable else hint
    except Exception as error:  # noqa: BLE001  # the annotation's text is evaluated, and may raise anything
        if isinstance(annotation, str) and _CONTEXT_TEXT.fullmatch(annotation.strip()):
            return ToolContext
        raise ConfigError(
            f"the type {annotation!r} of parameter {parameter.name!r} of tool {tool_name!r} cannot be resolved "
            f"({error}): "
            "import it outside TYPE_CHECKING, and define it before the tool is used"
        ) from None


def _is_context(annotation: Any) -> bool:
    origin = typing.get_origin(annotation)
    if origin in (Annotated, typing.Union, types.UnionType):
        return any(_is_context(inner) for inner in typing.get_args(annotation))
    return (origin or annotation) is ToolContext


def _always(parameter: _Parameter) -> bool:
    from pydantic.fields import FieldInfo

    return parameter.default is _Parameter.empty or isinstance(parameter.default, FieldInfo)


def _field(parameter: _Parameter, annotation: Any, docstring_text: str | None) -> tuple[Any, Any]:
    """A field of the validator's model, named neutrally, with the parameter's name as alias: no name can clash."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    if isinstance(parameter.default, FieldInfo):
        annotation = Annotated[annotation, parameter.default]
    metadata = getattr(annotation, "__metadata__", ())
    own = [item for item in metadata if isinstance(item, FieldInfo)]
    options: dict[str, Any] = {"alias": next((f.alias for f in own if f.alias), parameter.name)}
    if not any(f.description for f in own):
        notes = (item if isinstance(item, str) else getattr(item, "documentation", None) for item in metadata)
        options["description"] = next((note for note in notes if isinstance(note, str)), docstring_text)
    if not _always(parameter):
        options["default"] = parameter.default
    return annotation, Field(**options)


@functools.cache
def _generator() -> Any:
    from pydantic.json_schema import GenerateJsonSchema

    class PlainSchema(GenerateJsonSchema):
        """Leaves out defaults that JSON cannot hold, without a warning."""

        ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # declared so by pydantic

    return PlainSchema


def _model(tool_name: str, fields: dict[str, tuple[Any, Any]], hints: dict[str, Any]) -> tuple[Any, JSONObject]:
    from pydantic import ConfigDict, create_model

    config = ConfigDict(extra="forbid", protected_namespaces=())
    try:
        model = create_model("Arguments", __config__=config, **cast("Any", fields))
        schema = model.model_json_schema(schema_generator=_generator())
    except Exception as error:  # pydantic's own errors have no common base
        raise ConfigError(_blame(tool_name, hints) or f"tool {tool_name!r} has no JSON schema: {error}") from error
    return model.__pydantic_validator__, _tidy(schema)


def _blame(tool_name: str, hints: dict[str, Any]) -> str | None:
    from pydantic import TypeAdapter

    for name, hint in hints.items():
        try:
            TypeAdapter(hint).json_schema(schema_generator=_generator())
        except Exception as error:  # noqa: BLE001  # as above
            shown, reason = inspect.formatannotation(hint), str(error).strip().partition("\n")[0]
            return (
                f"parameter {name!r} of tool {tool_name!r} has the type {shown}, which JSON cannot hold ({reason}): "
                "use a type that it can, take it from the ToolContext's deps, or bind it with functools.partial"
            )
    return None


def _tidy(schema: JSONObject) -> JSONObject:
    """The root in a fixed order, without titles."""
    plain = _untitled(normalise(schema))
    order = ("type", "properties", "required", "additionalProperties", "$defs")
    return {key: plain[key] for key in order if key in plain}


def _untitled(schema: JSON) -> JSON:
    if isinstance(schema, list):
        return [_untitled(item) for item in cast("list[JSON]", schema)]
    if not isinstance(schema, dict):
        return schema
    return {key: _untitled_value(key, value) for key, value in cast("JSONObject", schema).items() if key != "title"}


def _untitled_value(key: str, value: JSON) -> JSON:
    if key in ("properties", "$defs", "patternProperties"):
        return {name: _untitled(inner) for name, inner in value.items()}
    return value if key in ("default", "const", "enum", "examples") else _untitled(value)


def _output_schema(annotation: Any, names: tuple[dict[str, Any], dict[str, Any] | None]) -> JSONObject | None:
    """The schema of what the function returns; None where it says nothing, or nothing that JSON has."""
    from pydantic import TypeAdapter

    try:
        hint = None if annotation is inspect.Signature.empty else _evaluate(annotation, names)
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        if origin in _STREAMS:
            hint = list[arguments[0]]
        if any(hint is known for known in _NO_SCHEMA) or any(a in _NO_SCHEMA[4:] for a in arguments):
            return None
        adapter = TypeAdapter(cast("Any", hint))
        schema = adapter.json_schema(mode="serialization", by_alias=False, schema_generator=_generator())
    except Exception:  # noqa: BLE001  # a return type without a schema is no fault of the tool
        return None
    return _untitled(normalise(schema)) or None
