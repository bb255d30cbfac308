"""Python functions as tools."""

import asyncio
import copy
import functools
import inspect
import threading
import types
from collections.abc import Callable
from functools import cached_property
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from replan.encoding import JSONObject
from replan.errors import ConfigError
from replan.tool import ToolContext, ToolError, ToolInfo, ToolOutput, text_output

from ._output import collect, collect_async, to_output
from .names import check_name
from .schema import CallSchema, check_signature, read_function
from .threads import run_in_thread

__all__ = ["FunctionTool", "tool"]

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")


class FunctionTool(Generic[P, R]):
    """A function as a tool; still callable as the function.

    An async function runs on the event loop. A sync one runs in a thread, with the caller's context variables; at most
    64 run at once in a process, further ones wait. A thread cannot be stopped: when a call is cancelled or times out,
    the context's `cancelled` is set, the call returns at once, and the thread's late result is dropped. What a
    generator yields is collected into a list.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        read_only: bool = False,
        idempotent: bool = False,
        timeout: float | None = None,
    ) -> None:
        _check_callable(function)
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self.name = check_name(_name_of(function) if name is None else name)
        self.timeout = _check_timeout(timeout, self.name)
        self._description, self._read_only, self._idempotent = description, read_only, idempotent
        self._lazy = _LazySchema(function, self.name)
        self._is_async = _is_async(function)

    def __repr__(self) -> str:
        return f"<tool {self.name!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._function(*args, **kwargs)

    def __set_name__(self, owner: type, attribute: str) -> None:
        if getattr(self._function, "__qualname__", "") == f"{owner.__qualname__}.{attribute}":
            self._lazy.method = not isinstance(self._function, staticmethod)

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(
        self: "FunctionTool[Concatenate[Any, Q], R]", instance: object, owner: type | None = None
    ) -> "FunctionTool[Q, R]": ...
    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        """The tool bound to the instance, where it was made of a method."""
        if instance is None or not self._lazy.method:
            return self
        bound = copy.copy(self)
        vars(bound)["_function"] = types.MethodType(self._function, instance)
        return bound

    def check(self) -> Self:
        """Build the schemas now. Raises `ConfigError` for a signature that no model can fill."""
        _ = self.info
        return self

    @property
    def info(self) -> ToolInfo:
        """Name, description, schemas and declarations."""
        return self._info

    @cached_property
    def _info(self) -> ToolInfo:
        if self._lazy.method and not isinstance(self._function, types.MethodType):
            raise ConfigError(f"tool {self.name!r} is a method: take it from an instance, as in instance.{self.name}")
        schema = self._lazy.schema
        return ToolInfo(
            name=self.name,
            description=schema.description if self._description is None else self._description,
            parameters=schema.parameters,
            output_schema=schema.output,
            read_only=self._read_only,
            idempotent=self._idempotent,
        )

    def validate(self, arguments: JSONObject) -> JSONObject:
        """The arguments, if they fit the signature without any conversion. Raises `InvalidArguments`."""
        self._lazy.schema.values(arguments)
        return arguments

    async def call(self, arguments: JSONObject, context: ToolContext[Any]) -> ToolOutput:
        """Call the function with typed values. Raises what it raises; running out of time is an error output."""
        schema = self._lazy.schema
        values = schema.values(arguments)
        for parameter in schema.contexts:
            values[parameter] = context
        clock = asyncio.timeout(self.timeout)
        try:
            async with clock:
                return await self._run(values, context.cancelled)
        except TimeoutError:
            if not clock.expired():
                raise
            context.cancelled.set()
            return text_output(self._timeout_text(), is_error=True, outcome_unknown=True)
        except asyncio.CancelledError:
            context.cancelled.set()
            raise
        except SystemExit as error:
            raise ToolError(f"the tool tried to end the program (exit code {error.code!r})") from error

    async def _run(self, values: dict[str, Any], cancelled: threading.Event) -> ToolOutput:
        function = cast("Callable[..., Any]", self._function)
        if self._is_async:
            value = function(**values)
        else:
            value = await run_in_thread(lambda: _finish(function(**values), cancelled), cancelled)
            if isinstance(value, ToolOutput):
                return value
        if inspect.isawaitable(value):
            value = await value
        return to_output(await collect_async(value))

    def _timeout_text(self) -> str:
        doubt = "" if self._read_only or self._idempotent else "; what it was to change may have changed"
        return f"{self.name} gave no result within {self.timeout:g} s{doubt}"


def _finish(value: Any, cancelled: threading.Event) -> Any:
    """The output, made in the function's own thread so that a large result does not hold up the event loop."""
    return value if inspect.isawaitable(value) or inspect.isasyncgen(value) else to_output(collect(value, cancelled))


class _LazySchema:
    """The schema of a function, built on first use and shared by all tools that are bound to the same function."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        annotations = [p.annotation for p in check_signature(function, name)]
        annotations.append(inspect.signature(function).return_annotation)
        self.method = False
        self._function, self._name = function, name
        self._local_names = _caller_names() if any(isinstance(a, str) for a in annotations) else None

    @cached_property
    def schema(self) -> CallSchema:
        schema = read_function(self._function, self._name, self._local_names, method=self.method)
        self._local_names = None
        return schema


def _caller_names() -> dict[str, Any] | None:
    """The local names where the tool is being made, for annotations that are text."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__", "").startswith("replan."):
        frame = frame.f_back
    return None if frame is None or frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _check_callable(function: Any) -> None:
    if isinstance(function, classmethod):
        raise ConfigError("a classmethod cannot be decorated: make the tool of the bound method, as in tool(C.method)")
    if isinstance(function, type) or not callable(function):
        raise ConfigError(f"{function!r} cannot be a tool: give a function, a method or a callable object")


def _name_of(function: Any) -> str:
    if isinstance(function, functools.partial):
        return _name_of(cast("Any", function).func)
    return getattr(function, "__name__", None) or type(function).__name__


def _check_timeout(timeout: float | None, name: str) -> float | None:
    if timeout is not None and not timeout > 0:
        raise ConfigError(f"the timeout of tool {name!r} is {timeout!r}: give seconds above zero, or leave it out")
    return timeout


def _is_async(function: Any) -> bool:
    called = (function, getattr(cast("Any", type(function)), "__call__", None))  # noqa: B004  # whether it is async is the question
    return any(inspect.iscoroutinefunction(c) or inspect.isasyncgenfunction(c) for c in called)


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool = False,
    timeout: float | None = None,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Any = None, /, **options: Any) -> Any:
    """Make a tool of a function: `@tool`, or `@tool(read_only=True)`.

    The parameters' schema comes from the annotations, their texts and the description from the docstring. A parameter
    that is annotated `ToolContext` is filled by the runtime and not shown to the model.

    Args:
        function: A sync or async function, method, `functools.partial` or callable object.
        name: What the model calls it, `[A-Za-z0-9_-]{1,64}`; the function's name if left out.
        description: What the model reads, instead of the docstring's text.
        read_only: Declares that a call changes nothing.
        idempotent: Declares that a second, equal call changes nothing more.
        timeout: Seconds after which a call is given up, as an error that the model reads.

    Raises:
        ConfigError: The signature or an option cannot be used. Types are looked at later, by `check()` or on first use.
    """
    make: Any = functools.partial(cast("Any", FunctionTool), **options)
    return make if function is None else make(function)
