"""Whether chunks fit the embedder, asked before any work is done."""

from rag_core.errors import ConfigError

_FEWEST = 16


def check_window(tokens: int, prefix_tokens: int, special: int, window: int) -> None:
    """ConfigError if a chunk could be longer than the embedder reads: its end would be cut off silently."""
    needed = tokens + prefix_tokens + special
    if needed <= window:
        return
    room = window - prefix_tokens - special
    remedy = f"chunking.tokens to {room}" if room >= _FEWEST else "chunking.prefix_tokens and chunking.tokens"
    raise ConfigError(
        f"chunking.tokens + chunking.prefix_tokens + special tokens must be <= the embedder's window of {window}, "
        f"got {tokens} + {prefix_tokens} + {special} = {needed}: lower {remedy}"
    )
