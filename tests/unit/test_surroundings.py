from uuid import UUID

import pytest
from drafts import chunks

from rag_cli.search import surrounding_text
from rag_core.types import Chunk

ID = UUID(int=1)
TEXT = "One two. Three four. Five six. Seven eight."


def span(ordinal: int, start: int, end: int) -> Chunk:
    return Chunk(id=UUID(int=ordinal), document_id=ID, ordinal=ordinal, text=TEXT[start:end], start=start, end=end)


def test_text_that_chunks_share_is_returned_once() -> None:
    first, hit, last = span(0, 0, 20), span(1, 9, 30), span(2, 21, 43)
    assert surrounding_text(hit, [first, last]) == ("One two.", "Seven eight.")


@pytest.mark.parametrize(
    ("place", "expected"),
    [(0, ("", "b\nc")), (1, ("a", "c")), (2, ("a\nb", ""))],
)
def test_neighbours_are_in_text_order(place: int, expected: tuple[str, str]) -> None:
    all_of_them = chunks(ID, ["a", "b", "c"])
    neighbours = [chunk for chunk in reversed(all_of_them) if chunk.ordinal != place]
    assert surrounding_text(all_of_them[place], neighbours) == expected


def test_a_chunk_alone_has_no_surroundings() -> None:
    assert surrounding_text(span(0, 0, 8), []) == ("", "")
