"""`typing.TypedDict` on Python 3.11, which pydantic refuses: the same type by `typing_extensions`, which it takes."""

import sys
import types
import typing
from typing import Annotated, Any, Literal, NotRequired, Required, Union, cast

_NEEDED = sys.version_info < (3, 12)


def readable(hint: Any) -> Any:
    """The type with the typed dicts in it (not those inside classes) as pydantic can read them."""
    return _rebuild(hint, set()) if _NEEDED else hint


def _rebuild(hint: Any, inside: set[Any]) -> Any:
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing" and hint not in inside:
        return _typed_dict(hint, inside | {hint})
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if not arguments or origin is Literal or isinstance(arguments[0], list):
        return hint
    if origin is Annotated:
        return Annotated[(_rebuild(arguments[0], inside), *arguments[1:])]
    rebuilt = tuple(_rebuild(argument, inside) for argument in arguments)
    if all(new is old for new, old in zip(rebuilt, arguments, strict=True)):
        return hint
    return Union[rebuilt] if origin in (Union, types.UnionType) else origin[rebuilt]  # noqa: UP007  # of a tuple


def _typed_dict(cls: Any, inside: set[Any]) -> Any:
    from typing_extensions import TypedDict

    fields: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(cls, include_extras=True).items():
        mark: Any = typing.get_origin(hint)
        if mark not in (Required, NotRequired):
            mark = Required if name in cls.__required_keys__ else NotRequired
        else:
            hint = typing.get_args(hint)[0]  # noqa: PLW2901  # without its mark
        fields[name] = mark[_rebuild(hint, inside)]
    made: Any = cast("Any", TypedDict)(cls.__name__, fields)
    made.__doc__, made.__module__ = cls.__doc__, cls.__module__
    return made
