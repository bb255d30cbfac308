"""Google's credentials, for Vertex AI: application default credentials, a service account, or a token.

The one place where `google-auth` is imported; a plain token does without it.
"""

import asyncio
import datetime
import inspect
import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from replan.errors import AuthError, ConfigError, MissingDependency

__all__ = ["GoogleAuth", "vertex_base_url"]

_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_EARLY = 300.0
"""Seconds before its end in which a token is made anew."""

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
        self._lock = threading.Lock()
        self._last = ""
        self.project: str | None = None
        """The project that the credentials are of, where they say it."""
        self._credentials: Any = None
        if access_token is None:
            self._credentials, self.project = _found(credentials)

    def __repr__(self) -> str:
        return f"GoogleAuth(project={self.project!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The token that was last used."""
        return (self._last,) if self._last else ()

    async def headers(self, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The token as a header, and whose quota counts. Raises `AuthError` where no token is to be had."""
        self._last = await self._current()
        found = {"Authorization": f"Bearer {self._last}"}
        if quota := getattr(self._credentials, "quota_project_id", None):
            found["x-goog-user-project"] = str(quota)
        return found

    async def _current(self) -> str:
        if self._token is None:
            return self._credentials.token if self._fresh() else await asyncio.to_thread(self._refreshed)
        if isinstance(self._token, str):
            return self._token
        given = self._token()
        return await given if inspect.isawaitable(given) else given

    def _fresh(self) -> bool:
        expiry = self._credentials.expiry
        return bool(self._credentials.token) and (expiry is None or _left(expiry) > _EARLY)

    def _refreshed(self) -> str:
        """A new token; of several that ask at once, in whatever loops, one makes it."""
        with self._lock:
            if not self._fresh():
                transport: Any = import_module("google.auth.transport.requests")
                errors: Any = import_module("google.auth.exceptions")
                try:
                    self._credentials.refresh(transport.Request())
                except errors.GoogleAuthError as error:
                    raise AuthError(
                        f"Google gave no access token: {error}; check the credentials, or log in again with "
                        "`gcloud auth application-default login`"
                    ) from None
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
        if isinstance(credentials, str):
            credentials = json.loads(Path(credentials).read_text("utf-8"))
        if isinstance(credentials, Mapping):
            info = cast("Mapping[str, Any]", credentials)
            return accounts.Credentials.from_service_account_info(info, scopes=[_SCOPE]), info.get("project_id")
    except (library.exceptions.GoogleAuthError, ValueError, OSError) as error:
        raise ConfigError(
            f"there are no Google credentials to be used: {error}; set GOOGLE_APPLICATION_CREDENTIALS to a key file, "
            "log in with `gcloud auth application-default login`, or give access_token="
        ) from None
    return credentials, getattr(credentials, "project_id", None)


def _left(expiry: Any) -> float:
    """Seconds until a naive UTC time."""
    return expiry.replace(tzinfo=datetime.UTC).timestamp() - time.time()
