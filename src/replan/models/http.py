"""HTTP to model providers: one connection pool for each event loop, streamed answers, and a switch that blocks it
all.

`aiohttp` is imported on the first request. A proxy is taken from the environment (`HTTPS_PROXY`, `HTTP_PROXY`,
`ALL_PROXY`, `NO_PROXY`; read once for each loop and address, never used for this machine itself), and so are
certificate authorities: `SSL_CERT_FILE` and `SSL_CERT_DIR`, else `REQUESTS_CA_BUNDLE`.
"""

import asyncio
import atexit
import io
import ipaddress
import os
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from replan._version import __version__
from replan.errors import BadResponse, ConfigError, ModelError, ModelTimeout, NetworkError

from .failures import Failure, answer_failure

if TYPE_CHECKING:  # loading aiohttp takes 0.2 s
    from aiohttp import ClientResponse, ClientSession

__all__ = ["check_allowed", "close_all", "drain", "post_stream", "public_url", "set_blocked"]

CONNECT_TIMEOUT = 10.0
"""Seconds to reach a provider, TLS included."""

_LARGE = 2**19
_ERROR_BODY = 2**16

_blocked = False


def set_blocked(blocked: bool) -> bool:
    """Block or allow requests to anything but this machine, in the whole process. Gives what it was before."""
    global _blocked  # one switch for the process is what it is for
    before, _blocked = _blocked, blocked
    return before


def check_allowed(target: str) -> None:
    """Raise `ConfigError` where real requests are blocked and `target`, a URL or `local:name`, is one."""
    if _blocked and (target.startswith("local:") or not _on_this_machine(urlsplit(target).hostname or "")):
        raise ConfigError(
            f"real model requests are blocked, and {public_url(target)!r} is one; "
            "use ScriptedModel or ScriptedServer, or allow it by replan.testing.allow_real_requests()"
        )


async def post_stream(
    url: str, headers: Mapping[str, str], body: bytes, *, timeout: float, model: str, secrets: Iterable[str] = ()
) -> AsyncGenerator[bytes, None]:
    """POST `body` and give the body of the answer as it comes, in pieces of any size.

    Closing the generator early ends the request. Raises `Failure` for every answer other than 2xx, when `timeout`
    seconds pass without a byte, and when the connection cannot be made or breaks. `model` is the name for errors,
    `secrets` are texts that must not show up in them. Redirects are not followed.
    """
    check_allowed(url)
    import aiohttp

    broken = (aiohttp.ClientError, OSError, asyncio.TimeoutError)
    try:
        response = await (await _pool()).post(url, headers, body, timeout)
    except broken as error:
        raise _broken(error, url, timeout, model) from None
    try:
        if not 200 <= response.status < 300:
            said = await _beginning(response)
            raise answer_failure(response.status, response.headers, said, model=model, secrets=secrets)
        while chunk := await response.content.readany():
            yield chunk
    except broken as error:
        raise _broken(error, url, timeout, model) from None
    finally:
        response.release() if response.content.at_eof() else response.close()


async def drain(chunks: AsyncGenerator[bytes, None], seconds: float = 0.2) -> None:
    """Read what is left of a finished answer, so that the connection can be used again; give up after `seconds`."""
    with suppress(TimeoutError, Failure):
        async with asyncio.timeout(seconds):
            async for _ in chunks:
                pass


async def close_all() -> None:
    """Close the connections of the running event loop. They also close by themselves when the loop ends."""
    if pool := _pools.get(asyncio.get_running_loop()):
        await pool.close()


class _Pool:
    """The connections of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import aiohttp

        self.loop = loop
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60.0, ttl_dns_cache=60)
        self.session: ClientSession = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": f"replan/{__version__}", "Accept-Encoding": "identity"},
        )
        self.lifeline = self._live()
        self._ways: dict[str, dict[str, Any]] = {}
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, timeout: float) -> "ClientResponse":
        way = self._ways.get(url) or self._find_way(url)
        limits = self._timeouts.get(timeout) or self._limits(timeout)
        data = body if len(body) < _LARGE else io.BytesIO(body)
        return await self.session.post(headers=headers, data=data, timeout=limits, allow_redirects=False, **way)

    async def close(self) -> None:
        await self.lifeline.aclose()

    async def _live(self) -> AsyncGenerator[None, None]:
        """Started and never finished: a loop closes such generators at its end, and with this one the session."""
        try:
            yield
        finally:
            _pools.pop(self.loop, None)
            await self.session.close()

    def _find_way(self, url: str) -> dict[str, Any]:
        import yarl

        if len(self._ways) > 1000:
            self._ways.clear()
        way = self._ways[url] = {"url": yarl.URL(url, encoded="%" in url), "proxy": _proxy(url), "ssl": _tls(url)}
        return way

    def _limits(self, timeout: float) -> Any:
        import aiohttp

        limits = aiohttp.ClientTimeout(total=None, connect=CONNECT_TIMEOUT, sock_read=timeout)
        return self._timeouts.setdefault(timeout, limits)


_pools: dict[asyncio.AbstractEventLoop, _Pool] = {}


async def _pool() -> _Pool:
    loop = asyncio.get_running_loop()
    pool = _pools.get(loop)
    if pool is None or pool.session.closed:
        _forget_dead_loops()
        pool = _pools[loop] = _Pool(loop)
        await anext(pool.lifeline)
    return pool


def _forget_dead_loops() -> None:
    """Let go of sessions whose loop was closed without closing its generators first."""
    for loop in [loop for loop in _pools if loop.is_closed()]:
        session = _pools.pop(loop).session
        connector = session.connector
        session.detach()
        if connector is not None:
            next(connector.close().__await__(), None)


@atexit.register
def _close_at_exit() -> None:
    for loop, pool in list(_pools.items()):
        if not loop.is_closed() and not loop.is_running():
            loop.run_until_complete(pool.close())
    _forget_dead_loops()


def _proxy(url: str) -> str | None:
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    host = parts.hostname or ""
    if _on_this_machine(host) or proxy_bypass(host):
        return None
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and "://" not in proxy:
        proxy = f"http://{proxy}"
    if proxy and not proxy.startswith(("http://", "https://")):
        raise ConfigError(
            f"the proxy {public_url(proxy)!r} for {host!r} is not supported; use an http:// one, or NO_PROXY"
        )
    return proxy


def _tls(url: str) -> Any:
    bundle = os.environ.get("REQUESTS_CA_BUNDLE")
    if not bundle or url.startswith("http:") or os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return True
    import ssl

    try:
        return ssl.create_default_context(cafile=bundle)
    except OSError as error:
        raise ConfigError(f"REQUESTS_CA_BUNDLE names {bundle!r}, which cannot be read: {error}") from None


async def _beginning(response: "ClientResponse") -> bytes:
    """At most 64 kB of the answer; what there is where it breaks off."""
    import aiohttp

    said = bytearray()
    with suppress(aiohttp.ClientError, OSError):
        while len(said) < _ERROR_BODY and (chunk := await response.content.readany()):
            said += chunk
    return bytes(said)


def _broken(error: Exception, url: str, timeout: float, model: str) -> Failure:
    import aiohttp

    where = urlsplit(url).netloc.rpartition("@")[2]
    kind: type[ModelError] = NetworkError
    again = True
    match error:
        case aiohttp.ConnectionTimeoutError():
            text = f"no connection to {where} within {CONNECT_TIMEOUT:g} s"
        case asyncio.TimeoutError():
            kind, text = ModelTimeout, f"nothing came from {where} for {timeout:g} s"
        case aiohttp.ClientConnectorCertificateError():
            again, text = (
                False,
                f"the certificate of {where} is not trusted ({error.certificate_error}); set SSL_CERT_FILE",
            )
        case aiohttp.ClientHttpProxyError():
            again, text = error.status >= 500, f"the proxy for {where} answered {error.status}: {error.message}"
        case aiohttp.ClientResponseError():
            kind, again, text = BadResponse, False, f"{where} does not answer in HTTP: {error.message}"
        case aiohttp.ClientConnectorError():
            text = f"cannot connect to {where}: {error.os_error}"
        case _:
            text = f"the connection to {where} broke: {error}"
    return Failure(kind(f"{model}: {text}", model=model), repeat=again)


def _on_this_machine(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def public_url(url: str) -> str:
    """The address without credentials, query and fragment."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}" if parts.netloc else url
