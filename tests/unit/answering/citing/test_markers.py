"""Markers in all the ways that generators and documents write them."""

from uuid import UUID

import pytest
from example_counts import scale_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from rag_core.answering.citing.citations import cite
from rag_core.answering.citing.marker_scan import MarkerScanner
from rag_core.answering.citing.markers import MARKER, marker_numbers, neutralize_markers, replace_stray_backticks
from rag_core.types import Chunk, Hit, Origin, Passage

_ID = UUID(int=1)
KNOWN = (1, 2, 3, 4, 5)
FORMS = [
    ("[1]", [1]),
    ("[1,2]", [1, 2]),
    ("[1, 3-5]", [1, 3, 4, 5]),
    ("[2; 1]", [2, 1]),
    ("[1 2]", [1, 2]),
    ("[[1]]", [1]),
    ("[[1, 2]]", [1, 2]),
    ("［1］", [1]),  # noqa: RUF001
    ("【1】", [1]),
    ("【1†source】", [1]),
    ("【4:0†page 3.pdf】", [4]),
    ("[^1]", [1]),
    ("[^1, ^2]", [1, 2]),
    ("[１]", [1]),  # noqa: RUF001
    ("[²]", [2]),
    ("[③]", [3]),
    ("[١]", [1]),  # noqa: RUF001
    ("⟦1⟧", [1]),
    ("〔2〕", [2]),  # noqa: RUF001
    ("[1–3]", [1, 2, 3]),  # noqa: RUF001
    ("[3-1]", []),
    ("[0, 4, 99]", [4]),
    ("[2-1000000000]", [2, 3, 4, 5]),
    ("[01]", [1]),
]


def scan_text(text: str, mark: str = "[{}]") -> str:
    scanner = MarkerScanner(dict.fromkeys(KNOWN, ""), frozenset(), mark)
    return "".join(piece.text for piece in [*scanner.feed(text), *scanner.finish()])


@pytest.mark.parametrize(("marker", "named"), FORMS)
def test_a_marker_names_its_passages(marker: str, named: list[int]) -> None:
    assert MARKER.fullmatch(marker)
    assert marker_numbers(marker, KNOWN) == named


@pytest.mark.parametrize(("marker", "named"), FORMS)
def test_only_markers_that_resolve_are_shown_and_in_canonical_form(marker: str, named: list[int]) -> None:
    expected = "".join(f"[{n}]" for n in named)
    assert scan_text(f"High {marker}.") == (f"High {expected}." if named else "High.")


@pytest.mark.parametrize("cut", ["[1", "[", "[[2", "【1", "[1, ", "[^3"])
def test_a_marker_that_the_text_breaks_off_in_is_left_out(cut: str) -> None:
    assert scan_text(f"Keys are new {cut}") == ("Keys are new [" if cut == "[" else "Keys are new")


@pytest.mark.parametrize("text", ["[x]", "[]", "[1a]", "[a1]", "[1.5]", "[-1]", "[ 1]", "(1)", "a[i]", "1]", "[]1]"])
def test_text_that_is_not_a_marker_stays(text: str) -> None:
    assert scan_text(text) == text


def test_a_marker_that_names_nothing_goes_with_the_white_space_before_it() -> None:
    assert scan_text("High [9]. Old \n [9] [1], new[9]") == "High. Old \n [1], new"
    assert scan_text("[9] High") == "High"
    assert scan_text("High.\n\n[9]\n\nOld") == "High.\n\nOld"
    assert scan_text("# High\n[9] Old") == "# High\nOld"
    assert scan_text("東京【9】は。") == "東京は。"


def test_a_hundred_markers_in_a_row_are_enough() -> None:
    assert scan_text("High" + "[1], " * 200 + "old [2]").count("[") == 101


def test_a_list_without_end_is_not_a_marker_and_does_not_look_like_one() -> None:
    endless = "1" * 400
    assert scan_text(f"High [{endless}].") == f"High ({endless}]."


def test_a_footnote_marker_is_written_as_one() -> None:
    assert scan_text("High [1, 2] [9].", "[^{}]") == "High [^1][^2]."


def test_a_marker_is_emitted_as_soon_as_it_can_be_nothing_else() -> None:
    scanner = MarkerScanner(dict.fromkeys(KNOWN, ""), frozenset())
    outputs = ["".join(piece.text for piece in scanner.feed(character)) for character in "So [1] x"]
    assert outputs == ["S", "o", "", "", "", "", " [1]", " x"]


@pytest.mark.parametrize(("marker", "_named"), FORMS)
def test_neutralising_keeps_every_offset(marker: str, _named: list[int]) -> None:
    text = f"`x{marker}` y {marker}"
    assert len(neutralize_markers(text)) == len(text)
    assert not MARKER.search(neutralize_markers(text))


def test_neutralised_brackets_are_round() -> None:
    assert neutralize_markers("[3] 【3】 [[3]] [a]") == "(3) (3) ((3)) [a]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a ` b", "a ' b"),
        ("`a` b", "`a` b"),
        ("``a`b`` ` c", "``a`b`` ' c"),
        ("```a b``", "'''a b''"),
        ("`a\nb`", "'a\nb'"),
        (r"\` a `b` `", r"\` a `b` '"),
    ],
)
def test_a_backtick_that_closes_nothing_is_an_apostrophe(text: str, expected: str) -> None:
    assert replace_stray_backticks(text) == expected


@pytest.mark.slow
@settings(deadline=None, max_examples=scale_examples(300))
@given(st.one_of(st.text(alphabet="[]［］【】^1２³①, -–:†a(`)\n", max_size=40), st.text(max_size=30)))  # noqa: RUF001
def test_nothing_neutralised_is_ever_cited(text: str) -> None:
    chunk = Chunk(id=_ID, document_id=_ID, ordinal=0, text="It is.", start=0, end=6)
    hit = Hit(chunk=chunk, origin=Origin(uri="u", title="t"), score=1)
    passages = [Passage(n=n, hit=hit, text="It is.", start=0, chunks=(chunk,)) for n in range(1, 40)]
    once = neutralize_markers(text)
    assert neutralize_markers(once) == once
    assert not cite(once, passages, "c").citations
