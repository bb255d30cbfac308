"""A switch that keeps tests from reaching real models."""

from types import TracebackType

from replan.models.http import set_blocked

__all__ = ["allow_real_requests", "block_real_requests"]


class RequestSwitch:
    """What `block_real_requests` and `allow_real_requests` give: leave it, as a context manager, to undo them."""

    def __init__(self, *, blocked: bool) -> None:
        self._before = set_blocked(blocked)

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        set_blocked(self._before)


def block_real_requests() -> RequestSwitch:
    """From now on every model request that leaves this machine, and every `local:` model, raises `ConfigError`.

    In a `conftest.py`, for the whole session:

        block_real_requests()

    or for a test:

        @pytest.fixture(autouse=True)
        def no_real_models():
            with block_real_requests():
                yield

    It concerns the whole process. Loopback addresses stay allowed, so `ScriptedServer` works.
    """
    return RequestSwitch(blocked=True)


def allow_real_requests() -> RequestSwitch:
    """The opposite of `block_real_requests`, used in the same ways: for the one test that means it."""
    return RequestSwitch(blocked=False)
