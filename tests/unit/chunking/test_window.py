import pytest

from rag_core.chunking.window import check_window
from rag_core.errors import ConfigError


def test_chunks_that_fill_the_window_exactly_fit() -> None:
    check_window(206, 48, 2, 256)


def test_chunks_that_would_be_cut_silently_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError) as raised:
        check_window(300, 48, 2, 256)
    assert str(raised.value) == (
        "chunking.tokens + chunking.prefix_tokens + special tokens must be <= the embedder's window of 256, "
        "got 300 + 48 + 2 = 350: lower chunking.tokens to 206"
    )


def test_the_message_names_the_prefix_if_it_leaves_no_room() -> None:
    with pytest.raises(ConfigError, match=r"lower chunking.prefix_tokens and chunking.tokens$"):
        check_window(200, 250, 2, 256)
