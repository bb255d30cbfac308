"""How a call to an MCP server fails, as the layers of this package tell each other."""

from typing import Literal, TypeAlias

__all__ = ["CallRefused", "ConnectionLost", "Fault"]

Fault: TypeAlias = Literal["session", "unauthorized", "unsent", "broken"]


class CallRefused(Exception):
    """The server answered with an error, or did not answer in time.

    The connection is good, unless `stale`: then the answer said, too, that the session is over. `may_have_run` says
    that the tool may have taken effect although there is no result.
    """

    def __init__(self, message: str, *, stale: bool = False, may_have_run: bool = False) -> None:
        super().__init__(message)
        self.stale, self.may_have_run = stale, may_have_run


class ConnectionLost(Exception):
    """The connection broke under a call, or the server forgot the session.

    `fault` says how: the session is unknown (`session`), the credentials are refused (`unauthorized`), or nothing
    reached the server (`unsent`): then the tool did not run. In the case of `broken` it may have run.
    """

    def __init__(self, message: str, *, fault: Fault) -> None:
        super().__init__(message)
        self.fault: Fault = fault

    @property
    def may_have_run(self) -> bool:
        """Whether the tool may have taken effect."""
        return self.fault == "broken"
