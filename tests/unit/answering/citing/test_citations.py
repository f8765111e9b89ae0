"""Citing: what must hold for any text in any pieces, and what a citation says."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from uuid import UUID

import pytest
from example_counts import scale_examples
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rendered import is_same_code, visible_text

from rag_core.answering.citing.citation_notes import sanitize_title
from rag_core.answering.citing.citations import Citer, cite
from rag_core.events import CitationAdded, TextDelta, add_citation
from rag_core.types import Answer, Chunk, Citation, CitationStyle, Hit, Metadata, Origin, Passage

TOWER = "The tower is 330 m high. It was built in 1889 by Eiffel. Visitors like it very much."
DOCUMENT = UUID(int=99)
SEEN = datetime(2026, 1, 2, tzinfo=UTC)
calmly = settings(deadline=None, max_examples=scale_examples(100), suppress_health_check=[HealthCheck.too_slow])


def chunk(id: int, text: str, start: int, metadata: Metadata) -> Chunk:
    return Chunk(
        id=UUID(int=id),
        document_id=DOCUMENT,
        ordinal=id,
        text=text,
        start=start,
        end=start + len(text),
        metadata=metadata,
    )


def passage(
    n: int, text: str = TOWER, start: int = 10, uri: str = "https://good.example/a", title: str = ""
) -> Passage:
    part = chunk(n, text, start, {"page": 3, "section": "Paris > Towers"})
    origin = Origin(uri=uri, title=title or f"Title {n}", updated_at=SEEN)
    return Passage(n=n, hit=Hit(chunk=part, origin=origin, score=1.0), text=text, start=start, chunks=(part,))


PASSAGES = [passage(1), passage(2, "Berlin has 3.7 million people. It is old.", uri="file:///b.md"), passage(3)]


def cite_text(text: str, passages: Sequence[Passage] = PASSAGES, style: CitationStyle = "inline") -> Answer:
    return cite(text, passages, "towns", style)


def claims(answer: Answer) -> list[tuple[int, str]]:
    return [(citation.n, answer.text[slice(*citation.claim)]) for citation in answer.citations]


def only(answer: Answer) -> Citation:
    [citation] = answer.citations
    return citation


def stream_answer(pieces: Sequence[str], style: CitationStyle = "inline") -> tuple[Answer, Answer]:
    """Returns the answer, and the fold of the emitted events."""
    citer = Citer(PASSAGES, "towns", style)
    events = [event for piece in pieces for event in citer.feed(piece)] + citer.finish()
    text, citations = "", tuple[Citation, ...]()
    for event in events:
        match event:
            case TextDelta(delta):
                text += delta
            case CitationAdded(citation):
                citations = add_citation(citations, citation)
    return citer.answer, Answer(text=text, citations=citations, coverage=citer.answer.coverage)


WORDS = [
    "Paris",
    "330 m",
    " ",
    " ",
    "  ",
    "\n",
    "\n\n",
    ". ",
    ".",
    ",",
    "1",
    "9",
    "x",
    "-",
    ":",
    "(",
    ")",
    "\\",
    "東京",
    "。",
]
MARKS = [
    "[1]",
    "[2]",
    "[9]",
    "[1, 3-5]",
    "[[1]]",
    "［2］",  # noqa: RUF001
    "【1†source】",
    "[^3]",
    "[",
    "]",
    "【",
    "】",
    "[[",
    "]]",
    "^",
]
CODE = [
    "`",
    "``",
    "```",
    "```py\n",
    "\n```\n",
    "   ```\n",
    "    ```",
    "\n- ```\n",
    "~~~",
    "\n~~~\n",
    "> ```",
    "|",
    "~",
    "\t",
    "`[1]`",
    "`a [2]\n",
    "\n\n    [1]",
    "\n- ",
    "\n2. ",
    "\n    - ",
    "\n> ",
    "\n|-|-|\n",
    "```a|b\n",
]
LINKS = [
    *("![a](b)", "[a](https://evil.example/q)", "[t](https://good.example/z)", "[1](https://evil.example)", "[1](p.3)"),
    *(
        "https://evil.example/a?b",
        "https://good.example/c",
        "http",
        "://",
        "www.",
        "evil.example",
        "](",
        "]:",
        "!",
        "<",
    ),
    *("<img src=e>", "img src=e>", "<a href='https://evil.example'>t</a>", "</a>", "<https://evil.example>", "<br>"),
    *("[r]: https://evil.example\n", "[r]: https://good.example\n", "javascript:", "//evil.example"),
]
texts = st.one_of(
    st.lists(st.sampled_from(WORDS + MARKS + CODE + LINKS), max_size=25).map("".join),
    st.text(alphabet="[]()`~!<>^1 9ax\n:./hw|\\-", max_size=40),
    st.text(max_size=30),
)
styles = st.sampled_from(["inline", "footnote", "endnote"])


def split_text(text: str, places: Sequence[int]) -> list[str]:
    bounds = [0, *sorted({place % (len(text) + 1) for place in places}), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@calmly
@given(texts, st.lists(st.integers(0, 10_000), max_size=8), styles)
@example("```\n" + "x" * 50 + "\n```\n[1]", list(range(60)), "inline")
def test_the_pieces_that_a_text_came_in_do_not_matter(text: str, places: list[int], style: CitationStyle) -> None:
    answer = cite(text, PASSAGES, "towns", style)
    assert stream_answer(split_text(text, places), style) == (answer, answer)
    assert stream_answer(list(text), style) == (answer, answer)


@calmly
@given(texts, styles)
@example("[9]~~~\n[1]", "inline")
@example("Old.\n\n[9]\n    [1] ` \n\n`[2]` `", "footnote")
@example("- [9]     x [1]", "inline")
@example("<https://good.example/`>[1]` `", "inline")
def test_a_marker_is_in_the_text_if_and_only_if_it_is_among_the_citations(text: str, style: CitationStyle) -> None:
    answer = cite(text, PASSAGES, "towns", style)
    body = re.split(r"\n\n(?:Sources\n1|Sources\n2|Sources\n3|\[\^\d\]: )", answer.text)[0]
    mark = r"\[\^(\d+)\]" if style == "footnote" else r"\[(\d+)\]"
    cited, visible = (
        {citation.n for citation in answer.citations},
        {int(n) for n in re.findall(mark, visible_text(body))},
    )
    assert visible <= cited
    if is_same_code(body) and "[r]: https://good" not in text:  # [1][r] is a link
        assert visible == cited
    for citation in answer.citations:
        written = f"[^{citation.n}]" if style == "footnote" else f"[{citation.n}]"
        assert {answer.text[start:end] for start, end in citation.spans} == {written}
        assert citation.claim[0] <= citation.claim[1] <= citation.spans[0][0]


@calmly
@given(texts)
def test_every_quote_is_in_its_document_and_in_its_chunk(text: str) -> None:
    for citation in cite_text(text).citations:
        source = PASSAGES[citation.n - 1]
        assert source.text[citation.start - source.start : citation.end - source.start] == citation.quote
        assert source.hit.chunk.start <= citation.start < citation.end <= source.hit.chunk.end
        assert 0 <= citation.score <= 1


@calmly
@given(texts)
def test_emitted_text_is_never_taken_back(text: str) -> None:
    citer = Citer(PASSAGES, "towns")
    numbers: list[int] = []
    for character in text:
        citer.feed(character)
        now = [citation.n for citation in citer.answer.citations]
        assert now[: len(numbers)] == numbers
        numbers = now


def test_a_marker_after_the_full_stop_belongs_to_the_sentence_before_it() -> None:
    assert claims(cite_text("It is old. It is high.[1] So it is. [2]")) == [(1, "It is high."), (2, "So it is.")]


def test_a_marker_within_a_sentence_claims_the_text_before_it() -> None:
    assert claims(cite_text("So. It is high [1] and old [2].")) == [(1, "It is high"), (2, "It is high [1] and old")]


def test_markers_after_one_sentence_share_its_claim() -> None:
    assert claims(cite_text("It is high [1][2]. [3] And")) == [(1, "It is high"), (2, "It is high"), (3, "It is high")]


def test_one_number_twice_for_one_claim_is_a_citation_with_two_spans() -> None:
    assert only(cite_text("High [1] [1].")).spans == ((5, 8), (9, 12))


def test_one_number_for_two_claims_is_two_citations() -> None:
    assert claims(cite_text("High [1]. Old [1].")) == [(1, "High"), (1, "Old")]


def test_offsets_are_code_points_of_the_answer() -> None:
    citation = only(cite_text("🗼 é is high [1]."))
    assert (citation.claim, citation.spans) == ((0, 11), ((12, 15),))


def test_a_citation_has_the_place_of_its_quote() -> None:
    citation = only(cite_text("Eiffel built it in 1889 [1]."))
    assert (citation.quote, citation.start, citation.end) == ("It was built in 1889 by Eiffel.", 35, 66)
    assert (citation.title, citation.uri, citation.page) == ("Title 1", "https://good.example/a", 3)
    assert (citation.section, citation.updated_at, citation.collection) == ("Paris > Towers", SEEN, "towns")
    assert (citation.chunk_id, citation.document_id, citation.score) == (UUID(int=1), DOCUMENT, 1.0)


def test_a_verbatim_sentence_of_the_passage_is_the_quote_whatever_its_white_space() -> None:
    source = passage(1, "Old towers sway. The tower\n  is high. The tower is high above old towers that sway.")
    citation = only(cite_text("The tower is high. [1]", [source]))
    assert (citation.quote, citation.score) == ("The tower\n  is high.", 1.0)


def test_a_part_of_a_sentence_is_quoted_with_all_of_it() -> None:
    assert only(cite_text("was built in 1889 [1]")).quote == "It was built in 1889 by Eiffel."


def test_a_part_of_a_word_is_not_a_verbatim_claim() -> None:
    assert only(cite_text("very [1]")).quote == "Visitors like it very much."
    assert only(cite_text("ver [1]")).score == 0


def test_a_number_counts_as_much_as_two_words() -> None:
    source = passage(1, "Tall towers sway. Bridges measure 330 steps.")
    citation = only(cite_text("The tall one of 330 steps sways [1]", [source]))
    assert citation.quote == "Bridges measure 330 steps."
    assert citation.score == pytest.approx(2 / 5)


def test_a_verbatim_sentence_is_found_although_its_own_marker_was_neutralised() -> None:
    source = passage(1, "It sways [7] in wind. It is high.")
    citation = only(cite_text("It sways (7) in wind. [1]", [source]))
    assert (citation.quote, citation.score) == ("It sways [7] in wind.", 1.0)


def test_a_claim_without_words_takes_the_first_sentence() -> None:
    citation = only(cite_text("[1]"))
    assert (citation.quote, citation.claim, citation.score) == ("The tower is 330 m high.", (0, 0), 0)


@pytest.mark.parametrize(
    ("text", "claim"),
    [
        ("Old.\n\n- [1] High", (8, 8)),
        ("Old.\n\n* **[1]** High", (10, 10)),
        ("1. [1] High", (3, 3)),
        ("12) [1] High", (4, 4)),
        ("# Towers\n[1] High", (9, 9)),
        ("# Towers\n\n[1] High", (10, 10)),
        ("[1] High", (0, 0)),
    ],
)
def test_a_marker_before_its_sentence_claims_nothing_and_least_of_all_the_text_above_it(
    text: str, claim: tuple[int, int]
) -> None:
    citation = only(cite_text(text))
    assert (citation.claim, citation.score, text[slice(*citation.spans[0])]) == (claim, 0, "[1]")


def test_a_number_and_a_heading_are_claims_of_the_marker_in_their_line() -> None:
    assert claims(cite_text("330 [1]\n\n# Towers [2]\nOld. [3]")) == [(1, "330"), (2, "# Towers"), (3, "Old.")]


def test_terms_are_those_of_the_documents_language() -> None:
    text = "Das Haus ist alt. Die Häuser stehen am Fluss."
    part = chunk(1, text, 0, {})
    source = Passage(
        n=1,
        hit=Hit(chunk=part, origin=Origin(uri="u", title="t", language="de"), score=1.0),
        text=text,
        start=0,
        chunks=(part,),
    )
    citation = only(cite_text("Am Flusse standen Häusern [1]", [source]))
    assert citation.quote == "Die Häuser stehen am Fluss."


def test_the_chunk_is_the_first_that_holds_the_quote_wholly() -> None:
    first, second = chunk(1, TOWER[:40], 10, {"page": 1}), chunk(2, TOWER[20:], 30, {"page": 2})
    hit = Hit(chunk=first, origin=Origin(uri="u", title="t"), score=1.0)
    source = Passage(n=1, hit=hit, text=TOWER, start=10, chunks=(first, second))
    assert only(cite_text("330 m [1]", [source])).page == 1
    assert only(cite_text("Built in 1889 [1]", [source])).page == 2


def test_an_answer_without_passages_has_no_markers() -> None:
    assert cite_text("It is high [1]. And old [2, 3].", []) == Answer(text="It is high. And old.")


def test_coverage_is_the_share_of_the_sentences_that_are_cited() -> None:
    assert cite_text("High [1]. Old. Built in 1889 [2]. Nice.").coverage == 0.5
    assert cite_text("").coverage == 0


def test_coverage_leaves_out_headings_code_and_numbers_of_lists() -> None:
    assert cite_text("# Towers\n\n1. High [1]\n2. Old [2]\n\n```\nx = 1\n```\n").coverage == 1


def test_footnotes_end_with_what_is_cited() -> None:
    answer = cite_text("Old [2]. High [1].", style="footnote")
    assert answer.text == "Old [^2]. High [^1].\n\n[^1]: Title 1, page 3\n[^2]: Title 2, page 3"
    assert (answer.coverage, answer.citations[0].spans) == (1, ((4, 8),))


def test_endnotes_end_with_what_is_cited() -> None:
    answer = cite_text("Old [2]. Old [1].", style="endnote")
    assert answer.text == "Old [2]. Old [1].\n\nSources\n1. Title 1 - https://good.example/a\n2. Title 2 - file:///b.md"


def test_a_list_of_sources_follows_no_answer_that_cites_nothing() -> None:
    assert cite_text("Old.", style="endnote").text == "Old."


def test_a_block_of_code_is_closed_before_the_list() -> None:
    assert cite_text("Old [2].\n```\nx", style="endnote").text.endswith(
        "\n```\nx\n```\n\nSources\n2. Title 2 - file:///b.md"
    )


def test_links_lead_to_cited_documents_only_and_to_known_hosts() -> None:
    sources = [passage(1), passage(2, uri="https://other.example/a")]
    text = "https://good.example/b High [1]. https://good.example/b https://other.example/?secret https://known.example"
    answer = cite(text, sources, "towns", hosts=frozenset({"known.example"}))
    assert answer.text == ("(link removed) High [1]. https://good.example/b (link removed) https://known.example")


def test_a_list_of_sources_links_to_what_it_lists_only() -> None:
    sources = [
        passage(1, title="A https://other.example/ https://good.example/"),
        passage(2, uri="https://other.example/a"),
    ]
    listed = cite_text("High [1].", sources, "endnote").text.split("\n")[-1]
    assert listed == "1. A (link removed) https://good.example/ - https://good.example/a"


def test_a_plain_title_is_one_line_without_markers_links_or_what_a_terminal_would_obey() -> None:
    title = "A\x1b]0;b\x07\n\x85# C [1] ![x](//evil.example) <img src=x> https://evil.example"
    assert sanitize_title(title, ()) == "A]0;b # C (1) (link removed)"
    assert [sanitize_title(title, ()) for title in ("", "![x](//evil.example)", "- a")] == ["", "", "- a"]


def test_no_title_is_code() -> None:
    listed = cite_text("Old [1].", [passage(1, title="``` <img src=x> `[2]`")], "footnote").text.split("\n")[-1]
    assert listed == "[^1]: ``` `(2)`, page 3"


def test_a_title_is_filtered_like_an_answer() -> None:
    source = passage(1, title="A ![x](https://evil.example/q) [2]\n\n# B https://evil.example")
    assert (
        cite_text("Old [1].", [source], "endnote").text.split("\n")[-1]
        == "1. A (2) # B (link removed) - https://good.example/a"
    )
