"""Only cursors that the gateway issued are accepted."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from rag_core.errors import UsageError
from serve.http.cursors import Listing

ROWS = [{"id": number} for number in range(1, 8)]
DOCUMENTS = Listing(key="id", name=("tenant", "documents", "docs", None), secret=b"s")


def after(listing: Listing, cursor: str) -> str:
    return listing.decode_cursor(cursor, "0")


def test_a_page_has_as_many_rows_as_asked_for_and_says_where_the_next_begins() -> None:
    rows, more = DOCUMENTS.split_page(ROWS[:4], 3)
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert more["has_more"] is True
    assert after(DOCUMENTS, more["next_cursor"]) == "3"


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_last_page_has_no_next(count: int) -> None:
    rows, more = DOCUMENTS.split_page(ROWS[:count], 3)
    assert len(rows) == count
    assert more == {"next_cursor": None, "has_more": False}


def test_without_a_cursor_a_listing_begins_at_its_first_row() -> None:
    assert after(DOCUMENTS, "") == "0"


def test_a_key_may_hold_any_character() -> None:
    (_, more) = DOCUMENTS.split_page([{"id": "Schlüssel\n🗝"}, {"id": "z"}], 1)
    assert after(DOCUMENTS, more["next_cursor"]) == "Schlüssel\n🗝"


def issue_cursor() -> str:
    return str(DOCUMENTS.split_page(ROWS, 3)[1]["next_cursor"])


def corrupt_cursor() -> str:
    signed = bytearray(urlsafe_b64decode(issue_cursor()))
    signed[-1] ^= 1
    return urlsafe_b64encode(signed).decode()


@pytest.mark.parametrize("cursor", [corrupt_cursor(), issue_cursor()[:-4], "3", "Mw==", "%%%", "é", "A" * 4096])
def test_a_cursor_that_was_not_issued_is_refused(cursor: str) -> None:
    with pytest.raises(UsageError, match="next_cursor"):
        after(DOCUMENTS, cursor)


@pytest.mark.parametrize(
    "other",
    [
        Listing(key="id", name=("another", "documents", "docs", None), secret=b"s"),
        Listing(key="id", name=("tenant", "documents", "docs", "failed"), secret=b"s"),
        Listing(key="id", name=("tenant", "documents", "docs"), secret=b"s"),
        Listing(key="id", name=("tenant", "documents", "docs", None), secret=b"t"),
    ],
)
def test_a_cursor_of_another_listing_is_refused(other: Listing) -> None:
    with pytest.raises(UsageError, match="next_cursor"):
        after(other, issue_cursor())


def test_a_listing_does_not_show_its_secret() -> None:
    assert "secret" not in repr(DOCUMENTS)
