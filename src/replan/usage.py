"""Token counts of model calls, and their sum over a run."""

from msgspec import Struct


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens of one or more model calls.

    `input_tokens` includes the cached and cache-written ones, `output_tokens` includes reasoning; both as providers
    bill them. `estimated` is set when a provider reported nothing and the counts come from the length of the texts.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    model_calls: int = 0
    estimated: bool = False

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.model_calls + other.model_calls,
            self.estimated or other.estimated,
        )


def estimate_tokens(characters: int) -> int:
    """Tokens of a text of that many characters, at four characters a token: for providers that report nothing."""
    return (characters + 3) // 4
