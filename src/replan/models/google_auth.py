"""Google's credentials, for Vertex AI: application default credentials, a service account, or a token.

The one place where `google-auth` is imported; a plain token does without it.
"""

import asyncio
import datetime
import inspect
import json
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, cast

from replan.errors import AuthError, ConfigError, MissingDependency

__all__ = ["GoogleAuth", "vertex_base_url"]

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_EARLY = 225.0
"""Seconds before its end in which a token is made anew. Earlier than four minutes before, metadata servers give out the
same token again.
"""

_REST = 30.0
"""Seconds in which a token that is still good is used, after making another went wrong."""

_SHORTEST_SECRET = 8
"""Shorter tokens are placeholders, and would black out words."""

_LOGIN = "check the credentials, or log in again with `gcloud auth application-default login`"

Token = str | Callable[[], str | Awaitable[str]]


def vertex_base_url(project: str, location: str) -> str:
    """Where Vertex AI serves a project's models; the location `global` has no region in its name."""
    region = "" if location == "global" else f"{location}-"
    return f"https://{region}aiplatform.googleapis.com/v1/projects/{project}/locations/{location}"


class GoogleAuth:
    """An access token for each request, made anew before it ends.

    `access_token` is a token, or a function, sync or async, that gives one. Without it `credentials` count: the
    path of a service account's key file, its content, or a `google.auth.credentials.Credentials`; without these the
    application default credentials (`GOOGLE_APPLICATION_CREDENTIALS`, those of gcloud, or of the machine). Raises
    `MissingDependency` where `google-auth` is needed and not installed, and `ConfigError` for credentials that
    cannot be read.
    """

    def __init__(self, *, credentials: Any = None, access_token: Token | None = None) -> None:
        self._token = access_token
        self._given: deque[str] = deque(maxlen=4)
        self._rests_until = 0.0
        self._worker = ThreadPoolExecutor(1, "replan-google")
        self.project: str | None = None
        """The project that the credentials are of, where they say it."""
        self._credentials: Any = None
        if access_token is None:
            self._credentials, self.project = _found(credentials)

    def __repr__(self) -> str:
        return f"GoogleAuth(project={self.project!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The last tokens: a request with the one before may still be under way."""
        return tuple(self._given)

    async def headers(self, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The token as a header, and whose quota counts. Raises `AuthError` where no token is to be had."""
        token = await (self._current() if self._token is None else self._from_caller(self._token))
        if len(token) >= _SHORTEST_SECRET and token not in self._given:
            self._given.append(token)
        found = {"Authorization": f"Bearer {token}"}
        if quota := getattr(self._credentials, "quota_project_id", None):
            found["x-goog-user-project"] = str(quota)
        return found

    async def _from_caller(self, source: Token) -> str:
        """The token that the caller gives; a function may take its time."""
        given: Any = source
        if callable(source):
            try:
                later = inspect.iscoroutinefunction(source)
                given = source() if later else await asyncio.to_thread(source)
                given = await given if inspect.isawaitable(given) else given
            except Exception as error:
                raise AuthError(f"access_token raised {type(error).__name__}: {error}; give one that works") from error
        if not isinstance(given, str) or not given.strip():
            raise AuthError(f"access_token gave no token but a {type(given).__name__}; give a text that is not empty")
        return given.strip()

    async def _current(self) -> str:
        if self._left() > self._margin():
            return str(self._credentials.token)
        return await asyncio.get_running_loop().run_in_executor(self._worker, self._refreshed)

    def _left(self) -> float:
        """Seconds that the token is good for; 0 without one."""
        credentials = self._credentials
        if not credentials.token:
            return 0.0
        return float("inf") if credentials.expiry is None else _until(credentials.expiry)

    def _margin(self) -> float:
        """Seconds before its end from which on a token is not used as it is; none soon after that went wrong."""
        return _EARLY if time.monotonic() >= self._rests_until else 0.0

    def _refreshed(self) -> str:
        """A new token. There is one thread for this: of several that ask at once, in whatever loops, one makes it."""
        before = str(self._credentials.token or "")
        if self._left() > self._margin():
            return before
        transport: Any = import_module("google.auth.transport.requests")
        try:
            self._credentials.refresh(transport.Request())
        except Exception as error:  # noqa: BLE001  # credentials may be of a class that we do not know
            if self._left() > 0:
                self._rests_until = time.monotonic() + _REST
                return before
            said = str(error.args[0] if error.args else type(error).__name__)  # behind it is what was answered
            said = said.replace(before, "[token]") if before else said
            raise AuthError(f"Google gave no access token: {said}; {_LOGIN}") from None
        if not self._credentials.token:
            raise AuthError(f"Google gave no access token; {_LOGIN}")
        return str(self._credentials.token)


def _found(credentials: Any) -> tuple[Any, str | None]:
    """Credentials and their project."""
    try:
        library: Any = import_module("google.auth")
        accounts: Any = import_module("google.oauth2.service_account")
        import_module("google.auth.transport.requests")
    except ImportError:
        raise MissingDependency(
            "these Google credentials need google-auth; run: pip install 'replan[google]' (or give access_token=)"
        ) from None
    try:
        if credentials is None:
            return library.default(scopes=[_SCOPE])
        if isinstance(credentials, str | PathLike):
            credentials = json.loads(Path(cast("str", credentials)).read_text("utf-8"))
        if isinstance(credentials, Mapping):
            info = cast("Mapping[str, Any]", credentials)
            return accounts.Credentials.from_service_account_info(info, scopes=[_SCOPE]), info.get("project_id")
    except (library.exceptions.GoogleAuthError, ValueError, OSError) as error:
        raise ConfigError(
            f"there are no Google credentials to be used: {error}; set GOOGLE_APPLICATION_CREDENTIALS to a key file, "
            "log in with `gcloud auth application-default login`, or give access_token="
        ) from None
    if not hasattr(credentials, "refresh"):
        kind = type(credentials).__name__
        raise ConfigError(f"credentials is a {kind}; give the path of a key file, its content, or google-auth's own")
    scoped: Any = import_module("google.auth.credentials").with_scopes_if_required(credentials, [_SCOPE])
    return scoped, getattr(scoped, "project_id", None)


def _until(end: datetime.datetime) -> float:
    """Seconds until a time; one without a zone is in UTC."""
    zoned = end if end.tzinfo else end.replace(tzinfo=datetime.UTC)
    return zoned.timestamp() - time.time()
