"""What is known of models."""

from replan.model import ModelProfile

__all__ = ["profile_for"]


def profile_for(provider: str, model: str) -> ModelProfile:
    """The profile."""
    return ModelProfile(images=True, thinking="effort")
