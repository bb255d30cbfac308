"""A connection to one MCP server: opened when needed, opened again when it broke, closed from anywhere.

The SDK is built on cancel scopes, which must be left in the task that entered them. So each lifetime of a connection
belongs to one task of its own, which opens it and closes it; everybody else calls through it, and asks it to end by
setting an event.
"""

import asyncio
import contextvars
import importlib
import logging
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from replan.encoding import JSONObject
from replan.errors import McpError

from .config import HttpServer, McpServer, StdioServer
from .faults import CallRefused, ConnectionLost
from .process import ServerProcess, child_environment

if TYPE_CHECKING:
    from mcp_types import CallToolResult, Tool

    from ._session import Session

__all__ = ["Connection", "Progress", "State"]

State: TypeAlias = Literal["idle", "connecting", "ready", "failed", "closed"]
Progress: TypeAlias = Callable[[float, float | None, str | None], None]

_log = logging.getLogger("replan.mcp")

_SDK = "replan.mcp._session"
_CLOSE_LIMIT = 4.5
"""Seconds for a connection to close in good order before its task is cancelled."""

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
"""Seconds between starts of a server that keeps breaking: none before the first new start, then these, doubling."""


class _Lifetime:
    """One session with the server. Its task, `run`, is the only one that enters and leaves the SDK's scopes."""

    def __init__(self, name: str, server: McpServer, listed: Callable[["Session"], None]) -> None:
        self.failure: str | None = None
        self.needs_authorization = False
        self.over = False
        self._name, self._server, self._listed = name, server, listed
        self._session: Session | None = None
        self._process: ServerProcess | None = None
        self._ready, self._end = asyncio.Event(), asyncio.Event()
        self._calls = 0
        self._task: asyncio.Task[None] | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def stranded(self) -> bool:
        """Whether its event loop is gone, so that nothing happens in it any more."""
        return not self._loop.is_running()

    @property
    def ready(self) -> bool:
        """Whether calls can be made."""
        return self._session is not None and not self.over

    @property
    def ended(self) -> bool:
        """Whether nothing is left of it."""
        return self._task is None or self._task.done()

    def begin(self, pause: float, after: "_Lifetime | None") -> None:
        """Start the task, `pause` seconds from now, when `after` has ended."""
        work = self._run(pause, after)
        # In a context of its own: it serves all runs, and must keep nothing alive that belongs to the one it began in.
        self._task = self._loop.create_task(work, name=f"mcp {self._name}", context=contextvars.Context())

    async def opened(self) -> "Session":
        """The session, when it is there. Raises `McpError` that says why it is not."""
        await self._ready.wait()
        if self._session is None:
            raise McpError(f"MCP server {self._name!r}: {self.failure}", server=self._name)
        return self._session

    def retire(self, lost: ConnectionLost) -> None:
        """Take no new calls, and end when the running ones are answered."""
        self.over = True
        self.failure = self.failure or str(lost)
        self.needs_authorization = lost.fault == "unauthorized"
        if not self._calls:
            self._end.set()

    async def wait(self) -> None:
        """Wait until it ended; bounded, and of no effect on it."""
        if not self.ended and self._task is not None and not self.stranded:
            await asyncio.wait({self._task}, timeout=_CLOSE_LIMIT)

    async def close(self) -> None:
        """End now, and wait until nothing is left; bounded. From any event loop."""
        if self._task is None or self._task.done():
            return
        if self.stranded:
            self.abandon()
            return
        if self._loop is not asyncio.get_running_loop():
            elsewhere = asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.close(), self._loop))
            await asyncio.wait({elsewhere}, timeout=_CLOSE_LIMIT + 1.5)
            return
        self._give_up()
        await self.wait()
        if not self._task.done():
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=1.0)

    def abandon(self) -> None:
        """End without waiting, from anywhere: in good order where the event loop runs, and else by force."""
        self.over = True
        if self.ended:
            return
        try:
            if not self.stranded:
                self._loop.call_soon_threadsafe(self._give_up)
                return
        except RuntimeError:
            _log.debug("MCP server %r: the event loop closed meanwhile", self._name)
        if self._process is not None:
            self._process.kill_group()

    def _give_up(self) -> None:
        self._end.set()
        if self._task is not None and not self._ready.is_set():
            self._task.cancel()

    async def call(self, tool: str, arguments: JSONObject, meta: JSONObject, progress: Progress) -> "CallToolResult":
        """Call a tool; see `Session.call`."""
        session = await self.opened()
        self._calls += 1
        try:
            return await session.call(tool, arguments, meta, progress)
        except ConnectionLost as lost:
            if self._process is None or not self._process.ended:
                raise
            raise ConnectionLost(f"the server {self._process.describe()}", fault=lost.fault) from lost
        finally:
            self._calls -= 1
            if self.over and not self._calls:
                self._end.set()

    async def _run(self, pause: float, after: "_Lifetime | None") -> None:
        try:
            if after is not None:
                await after.wait()
            await asyncio.sleep(pause)
            async with asyncio.timeout(self._server.connect_timeout) as limit:
                await self._serve(limit)
        except (Exception, BaseExceptionGroup) as error:  # noqa: BLE001  # what ended a connection is told to its users
            _log.debug("MCP server %r", self._name, exc_info=error)
        finally:
            self.over = True
            self.failure = self.failure or "closed"
            self._ready.set()

    async def _serve(self, limit: asyncio.Timeout) -> None:
        if isinstance(self._server, StdioServer):
            self._process = await self._start(self._server)
        try:
            await self._converse(limit)
        except BaseException as error:
            self.failure = self.failure or self._explain(error, limit)
            if isinstance(error, asyncio.CancelledError):
                self._end.set()
            if self._session is not None and not self._end.is_set():
                _log.warning("MCP server %r: the connection ended: %s", self._name, self.failure)
            raise
        finally:
            if self._process is not None:
                await self._process.stop()

    async def _converse(self, limit: asyncio.Timeout) -> None:
        if _SDK not in sys.modules:
            # The SDK takes long to import; in a thread it does so while the server starts and the loop goes on.
            await asyncio.to_thread(importlib.import_module, _SDK)
            self._restart(limit)
        from ._session import Session

        async with Session(self._name, self._server, self._process) as session:
            await session.list_tools()
            limit.reschedule(None)
            self._session = session
            self._listed(session)
            if self._process is not None:
                self._process.at_end(self._lose)
            self._ready.set()
            await session.watch(self._end, lambda: self._listed(session))
            self.over = True

    def _restart(self, limit: asyncio.Timeout) -> None:
        if self._server.connect_timeout is not None:
            limit.reschedule(asyncio.get_running_loop().time() + self._server.connect_timeout)

    async def _start(self, server: StdioServer) -> ServerProcess:
        try:
            env = {**child_environment(), **(server.env or {})}
            return await ServerProcess.start(self._name, server.command, server.args, env, server.cwd)
        except (OSError, ValueError) as error:
            self.failure = f"cannot be started: {error}"
            raise

    def _lose(self) -> None:
        """The process ended while the session was up."""
        if not self._end.is_set():
            assert self._process is not None
            self.failure = f"the server {self._process.describe()}"
            _log.warning("MCP server %r: %s", self._name, self.failure)
        self.over = True
        self._end.set()

    def _explain(self, error: BaseException, limit: asyncio.Timeout) -> str:
        if self._process is not None and self._process.ended:
            return f"the server {self._process.describe()}"
        said = "" if self._process is None else f"; the server {self._process.describe()}"
        if limit.expired():
            return f"no answer within {self._server.connect_timeout:g} s{said}"
        if isinstance(error, asyncio.CancelledError):
            return "closed"
        if _SDK not in sys.modules:
            return f"the MCP SDK cannot be imported: {error}"
        from ._session import explain

        text, self.needs_authorization = explain(error)
        return text + said


class Connection:
    """One configured server, over all its lifetimes.

    All methods may be called from any task of the event loop; when that is gone, from another, in which it connects
    anew. A connection that nobody refers to any more ends.
    """

    def __init__(self, name: str, server: McpServer) -> None:
        self.name = name
        self.server = server
        self.tools: tuple[Tool, ...] = ()
        self.instructions: str | None = None
        self._offered = frozenset[str]()
        self._lives: list[_Lifetime] = []
        self._failures = 0
        self._closed = False
        weakref.finalize(self, _abandon, self._lives)

    @property
    def state(self) -> State:
        """What the connection is doing now."""
        if self._closed:
            return "closed"
        if not self._lives:
            return "idle"
        if self._lives[-1].over:
            return "failed"
        return "ready" if self._lives[-1].ready else "connecting"

    @property
    def failure(self) -> str | None:
        """Why the connection is not there, where it is not."""
        return self._lives[-1].failure if self.state == "failed" else None

    @property
    def needs_authorization(self) -> bool:
        """Whether the server refused the last connection for want of credentials."""
        return self.state == "failed" and self._lives[-1].needs_authorization

    def offers(self, tool: str) -> bool:
        """Whether the server's latest list holds the tool."""
        return tool in self._offered

    async def open(self) -> None:
        """Connect, if there is no connection. Raises `McpError` where that fails."""
        self._failures = 0
        await self._current().opened()

    async def call(
        self, tool: str, arguments: JSONObject, *, meta: JSONObject, progress: Progress, repeatable: bool
    ) -> "CallToolResult":
        """Call a tool by the server's own name for it, connecting again first where that is needed.

        A call that cannot have run, because the server forgot the session or was not reached, is made once more on a
        new connection; one that may have run only if it is `repeatable`. Raises `McpError`, or `CallRefused` for the
        server's own errors.
        """
        again = True
        while True:
            life = self._current()
            try:
                result = await life.call(tool, arguments, meta, progress)
            except ConnectionLost as lost:
                if not lost.may_have_run:
                    life.retire(lost)
                if not again or (lost.may_have_run and not repeatable) or not self._worth(lost):
                    doubt = "; whether the call took effect is not known" if lost.may_have_run else ""
                    text = f"MCP server {self.name!r}: {lost}{doubt}"
                    raise McpError(text, server=self.name, may_have_run=lost.may_have_run) from lost
                again = False
            except CallRefused as refused:
                if refused.stale:
                    life.retire(ConnectionLost(str(refused), fault="session"))
                raise
            else:
                self._failures = 0
                return result

    async def close(self) -> None:
        """End the connection; it stays closed. Takes a few seconds at most, whatever the server does."""
        self._closed = True
        await asyncio.gather(*(life.close() for life in self._lives))

    def _current(self) -> _Lifetime:
        if self._closed:
            raise McpError(f"MCP server {self.name!r}: the connection is closed", server=self.name)
        last = self._lives[-1] if self._lives else None
        if last is not None and not last.over and not last.stranded:
            return last
        pause = 0.0 if self._failures < 2 else min(_FIRST_PAUSE * 2 ** (self._failures - 2), _LONGEST_PAUSE)
        self._failures += 1
        for life in self._lives:
            if life.stranded:
                life.abandon()
        self._lives[:] = [life for life in self._lives if not life.ended and not life.stranded]
        life = _Lifetime(self.name, self.server, _weakly(self._list))
        life.begin(pause, last if isinstance(self.server, StdioServer) else None)
        self._lives.append(life)
        return life

    def _worth(self, lost: ConnectionLost) -> bool:
        """Whether a new connection may do better."""
        if lost.fault == "unauthorized":
            return isinstance(self.server, HttpServer) and self.server.get_headers is not None
        return True

    def _list(self, session: "Session") -> None:
        self.tools = session.tools
        self.instructions = session.instructions
        self._offered = frozenset(tool.name for tool in session.tools)


def _weakly(listed: Callable[["Session"], None]) -> Callable[["Session"], None]:
    """The method, not keeping its object: a running lifetime is no reason for its connection to stay."""
    method = weakref.WeakMethod(listed)

    def call(session: "Session") -> None:
        if (found := method()) is not None:
            found(session)

    return call


def _abandon(lives: list[_Lifetime]) -> None:
    for life in lives:
        life.abandon()
