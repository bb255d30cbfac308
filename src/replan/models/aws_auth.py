"""AWS credentials that sign requests to Amazon Bedrock (IAM user guide, "Signature Version 4").

The only module that imports `botocore`, on the first request; needs the extra `bedrock`.
"""

import asyncio
import re
import threading
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from replan.errors import AuthError, ConfigError, MissingDependency

from .http import check_allowed

__all__ = ["AwsAuth", "bedrock_base_url"]

_REGION = re.compile(r"[a-z]{2,}(-[a-z]+)+-\d+\Z")
_DOMAINS = (
    ("cn-", "amazonaws.com.cn"),
    ("eusc-", "amazonaws.eu"),
    ("us-isob-", "sc2s.sgov.gov"),
    ("us-isof-", "csp.hci.ic.gov"),
    ("us-iso-", "c2s.ic.gov"),
    ("eu-isoe-", "cloud.adc-e.uk"),
)
_WHAT_TO_SET = (
    "set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile (AWS_PROFILE)"
)


def bedrock_base_url(region: str) -> str:
    """Where Bedrock answers in a region. Raises `ConfigError` for what is no region's name."""
    domain = next((domain for start, domain in _DOMAINS if region.startswith(start)), "amazonaws.com")
    return f"https://bedrock-runtime.{_checked(region)}.{domain}"


class AwsAuth:
    """Signs each request with the given keys, else with the profile's, else with what botocore's default chain finds
    (environment, files, single sign-on, the machine's role).

    Raises `MissingDependency` where botocore is not installed, `ConfigError` for half a pair of keys and for no region.
    """

    __slots__ = ("_found", "_given", "_lock", "_profile", "_region", "_signs")

    def __init__(
        self,
        *,
        region: str,
        access_key_id: str | None = None,
        secret_access_key: str | None = None,
        session_token: str | None = None,
        profile: str | None = None,
    ) -> None:
        if find_spec("botocore") is None:
            raise MissingDependency("AWS credentials need botocore; install it with: pip install 'replan[bedrock]'")
        if bool(access_key_id) != bool(secret_access_key):
            lacks = "secret_access_key" if access_key_id else "access_key_id"
            raise ConfigError(f"AWS keys come in pairs, and {lacks!r} is missing; set AWS_{lacks.upper()} or give it")
        self._region, self._profile = _checked(region), profile or None
        self._given = (access_key_id, secret_access_key, session_token or None) if access_key_id else None
        self._lock = threading.Lock()
        self._found: Any = None
        self._signs: Any = None

    def __repr__(self) -> str:
        return f"AwsAuth(region={self._region!r}, profile={self._profile!r})"

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret key and the session token, as far as they are known."""
        if self._given:
            return tuple(text for text in self._given[1:] if text)
        return tuple(text for text in self._signs[1:] if text) if self._signs else ()

    async def headers(self, url: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, str]:
        """The headers that sign this request: the time, the signature, and the session's token.

        Credentials are looked up, and renewed, in a thread. Raises `AuthError` where there are none.
        """
        check_allowed(url)
        found = self._found
        if found is None or _stale(found):
            found = await asyncio.to_thread(self._renew)
        self._signs = found.get_frozen_credentials()
        signed = {name: value for name, value in headers.items() if name.lower() == "content-type"}
        request = _botocore("awsrequest").AWSRequest(method="POST", url=url, headers=signed, data=body)
        _botocore("auth").SigV4Auth(self._signs, "bedrock", self._region).add_auth(request)
        return {name: value for name, value in request.headers.items() if name not in signed}

    def _renew(self) -> Any:
        """Find the credentials, or have them renewed. Blocks; used by several event loops."""
        exceptions = _botocore("exceptions")
        _botocore("auth")  # loaded here, because that takes long
        _botocore("awsrequest")
        with self._lock:
            try:
                self._found = self._found or self._find()
                self._found.get_frozen_credentials()
            except exceptions.ProfileNotFound:
                raise AuthError(f"there is no AWS profile {self._profile!r}; {_WHAT_TO_SET}") from None
            except (exceptions.BotoCoreError, exceptions.ClientError, RuntimeError, ValueError) as error:
                # what it says may hold what a program printed that was asked for the credentials
                kind = type(error).__name__
                raise AuthError(
                    f"no AWS credentials ({kind}); log in again ('aws sso login'), or {_WHAT_TO_SET}"
                ) from None
        return self._found

    def _find(self) -> Any:
        if self._given:
            return _botocore("credentials").Credentials(*self._given)
        found = _botocore("session").Session(profile=self._profile).get_credentials()
        if found is None:
            raise AuthError(f"no AWS credentials were found; {_WHAT_TO_SET}")
        return found


def _stale(credentials: Any) -> bool:
    """Whether credentials of the kind that ends want to be renewed."""
    needed = getattr(credentials, "refresh_needed", None)
    return needed is not None and needed()


def _botocore(name: str) -> Any:
    return import_module(f"botocore.{name}")


def _checked(region: str) -> str:
    if not _REGION.match(region):
        raise ConfigError(f"AWS region {region!r} is none; give one such as 'us-east-1', or set AWS_REGION")
    return region
