"""How many calls of one model may be under way, and begin within a minute, in the whole process."""

from collections.abc import AsyncIterator

from replan.model import Delta
from replan.settings import ModelSettings

__all__ = ["Limiter", "limiter_for"]


class Limiter:
    """Holds back calls of one model."""

    def stream(self, deltas: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
        """The deltas, begun when the limits allow it."""
        raise NotImplementedError


def limiter_for(base_url: str, name: str, settings: ModelSettings) -> Limiter | None:
    """The limiter of a model, shared in the process; None where nothing limits it."""
    raise NotImplementedError
