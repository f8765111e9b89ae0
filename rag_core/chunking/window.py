"""A check that chunks fit the embedder, before any work is done."""

from rag_core.errors import ConfigError

MIN_CHUNK_TOKENS = 16


def check_window(tokens: int, prefix_tokens: int, special: int, window: int, setting: str = "chunking.tokens") -> None:
    """Raises ConfigError if a chunk could exceed the embedder's window: its end would be cut off silently."""
    needed = tokens + prefix_tokens + special
    if needed <= window:
        return
    room = window - prefix_tokens - special
    remedy = f"{setting} to {room}" if room >= MIN_CHUNK_TOKENS else f"chunking.prefix_tokens and {setting}"
    raise ConfigError(
        f"{setting} + chunking.prefix_tokens + special tokens must be <= the embedder's window of {window}, "
        f"got {tokens} + {prefix_tokens} + {special} = {needed}: lower {remedy}"
    )
