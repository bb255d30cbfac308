"""Every error that a caller can get. What a model can react to is a tool result instead.

    ReplanError
    ├── ConfigError              a bad option, name or file, found before anything runs (also a ValueError)
    │   └── MissingDependency    an optional library is not installed; says which command installs it
    ├── ModelError               a model call failed for good
    │   ├── AuthError            key missing, wrong or without access (401, 403)
    │   ├── RateLimited          429 after all retries; `retry_after` in seconds where the provider said it
    │   ├── Overloaded           5xx after all retries
    │   ├── ContextTooLong       the request is larger than the model's window
    │   ├── ContentFiltered      the model refused, or the provider's filter stopped the reply
    │   ├── BadRequest           the provider refuses the request; carries its message
    │   ├── BadResponse          the provider's answer cannot be read (HTML, cut stream, not JSON)
    │   ├── ModelTimeout         no answer in time
    │   └── NetworkError         the provider could not be reached, or the connection broke
    ├── McpError                 an MCP server could not be started or reached, or broke down
    ├── JournalError             the journal cannot be read or written
    │   ├── JournalBusy          another process drives this run; names the owner
    │   ├── JournalFenced        this process lost the run to another one and may not write any more
    │   ├── JournalVersion       written by a newer Replan
    │   └── RunNotFound          no run of that id
    ├── RunFailed                a run failed for a reason that is not one of the above
    └── RunCancelled             a run was cancelled by `cancel()`

`run()` raises when a run ends as `failed` or `cancelled`; then `error.result` holds what there is: messages, usage,
trace.
"""

from typing import Any, ClassVar

from .encoding import JSONObject

__all__ = [
    "AuthError",
    "BadRequest",
    "BadResponse",
    "ConfigError",
    "ContentFiltered",
    "ContextTooLong",
    "JournalBusy",
    "JournalError",
    "JournalFenced",
    "JournalVersion",
    "McpError",
    "MissingDependency",
    "ModelError",
    "ModelTimeout",
    "NetworkError",
    "Overloaded",
    "RateLimited",
    "ReplanError",
    "RunCancelled",
    "RunFailed",
    "RunNotFound",
]


class ReplanError(Exception):
    """Base of all errors that Replan raises on purpose."""

    result: Any = None
    """The partial result of the run that ended with this error, where there was one."""

    fields: ClassVar[tuple[str, ...]] = ()
    """What besides the message survives being stored in a journal."""

    kinds: ClassVar[dict[str, type["ReplanError"]]] = {}

    def __init_subclass__(cls) -> None:
        ReplanError.kinds[cls.__name__] = cls

    def to_json(self) -> JSONObject:
        """The error as JSON, for a journal."""
        known = {name: getattr(self, name) for name in self.fields if getattr(self, name) is not None}
        return {"type": type(self).__name__, "message": str(self), **known}

    @staticmethod
    def from_json(data: JSONObject) -> "ReplanError":
        """The error that `to_json` described; of an unknown type it becomes `RunFailed`."""
        kind = ReplanError.kinds.get(data.get("type", ""), RunFailed)
        message = data.get("message", "")
        if kind.__name__ != data.get("type"):
            message = f"{data.get('type')}: {message}"
        return kind(message, **{name: data[name] for name in kind.fields if name in data})


class ConfigError(ReplanError, ValueError):
    """An option, a name or a file is wrong; nothing has run yet."""


class MissingDependency(ConfigError):
    """An optional library is needed and not installed."""


class ModelError(ReplanError):
    """A model call failed for good. `model` is `provider:name`, `status` the HTTP status where there was one."""

    fields = ("model", "status", "retry_after")

    def __init__(
        self, message: str, *, model: str | None = None, status: int | None = None, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.model, self.status, self.retry_after = model, status, retry_after


class AuthError(ModelError):
    """The key is missing, wrong, or has no access."""


class RateLimited(ModelError):
    """Still rate-limited after all retries."""


class Overloaded(ModelError):
    """The provider still failed (5xx) after all retries."""


class ContextTooLong(ModelError):
    """The request does not fit into the model's context window."""


class ContentFiltered(ModelError):
    """The model refused, or the provider's content filter stopped the request or the reply.

    A run ends as stopped then, with the refusal as its text; a `Fallback` can be told to move on.
    """


class BadRequest(ModelError):
    """The provider refuses the request."""


class BadResponse(ModelError):
    """The provider's answer cannot be read."""


class ModelTimeout(ModelError):
    """The model did not answer in time."""


class NetworkError(ModelError):
    """The provider could not be reached, or the connection broke."""


class McpError(ReplanError):
    """An MCP server could not be started or reached, or broke down. `server` is its name in the configuration.

    Of a call, `may_have_run` says that it may have taken effect.
    """

    fields = ("server",)

    def __init__(self, message: str, *, server: str | None = None, may_have_run: bool = False) -> None:
        super().__init__(message)
        self.server, self.may_have_run = server, may_have_run


class JournalError(ReplanError):
    """The journal cannot be read or written."""


class JournalBusy(JournalError):
    """Another process drives this run."""


class JournalFenced(JournalError):
    """This process lost the run to another one and may not write to it any more."""


class JournalVersion(JournalError):
    """The journal was written by a newer version of Replan."""


class RunNotFound(JournalError):
    """The journal holds no run of that id."""


class RunFailed(ReplanError):
    """A run failed for a reason that has no type of its own."""


class RunCancelled(ReplanError):
    """A run was cancelled by `cancel()`."""
