"""Packing by exact values, and what must hold for any hits of any documents."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest
from example_counts import scale_examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rag_core.answering.generation.near_duplicates import drop_near_duplicates
from rag_core.answering.generation.notes import age
from rag_core.answering.generation.packing import Packing, counted_text, pack
from rag_core.errors import ConfigError
from rag_core.types import Chunk, Hit, Origin, Passage

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEYS = "Keys are rotated monthly. A rotated key works for a day. Then it is refused. Ask the owner for a new one."
LEAVE = "Leave is asked for in writing. Two weeks before is enough."
calmly = settings(deadline=None, max_examples=scale_examples(50), suppress_health_check=[HealthCheck.too_slow])


def packing(**changes: Any) -> Packing:
    plain = Packing(
        strategy="concatenate",
        order="relevance",
        passages=8,
        tokens=1000,
        near_duplicate=0.9,
        template="{title}\n{text}",
        now=NOW,
    )
    return replace(plain, **changes)


def words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def letters(texts: Sequence[str]) -> list[int]:
    return list(map(len, texts))


def hit(text: str, score: float = 1.0, *, document: int = 1, start: int = 0, **origin: Any) -> Hit:
    chunk = Chunk(
        id=UUID(int=1000 * document + start),
        document_id=UUID(int=document),
        ordinal=start,
        text=text,
        start=start,
        end=start + len(text),
        prefix=origin.pop("prefix", ""),
        metadata=origin.pop("chunk", {}),
    )
    return Hit(chunk=chunk, origin=Origin(**{"uri": f"file:///{document}.md", "title": "", **origin}), score=score)


def span(text: str, start: int, end: int, score: float = 1.0, document: int = 1, **origin: Any) -> Hit:
    return hit(text[start:end], score, document=document, start=start, **origin)


def texts(passages: Sequence[Passage]) -> list[str]:
    return [passage.text for passage in passages]


def notes(passages: Sequence[Passage]) -> list[str]:
    return [passage.note for passage in passages]


def test_hits_become_passages_numbered_in_their_order() -> None:
    hits = [hit(KEYS, 0.9), hit(LEAVE, 0.4, document=2)]
    assert pack(hits, packing(), words) == (
        Passage(n=1, hit=hits[0], text=KEYS, start=0, chunks=(hits[0].chunk,)),
        Passage(n=2, hit=hits[1], text=LEAVE, start=0, chunks=(hits[1].chunk,)),
    )


def test_no_hits_are_no_passages() -> None:
    for strategy in ("concatenate", "weighted", "recency", "template"):
        assert pack([], packing(strategy=strategy), words) == ()


def test_chunks_that_overlap_or_touch_are_one_passage_with_the_better_ones_hit() -> None:
    last, first, second = span(KEYS, 56, 76, 0.9), span(KEYS, 0, 40, 0.8), span(KEYS, 25, 56, 0.7)
    (passage,) = pack([last, first, second], packing(), words)
    assert passage == Passage(n=1, hit=last, text=KEYS[:76], start=0, chunks=(first.chunk, second.chunk, last.chunk))


def test_a_chunk_inside_another_one_neither_repeats_its_text_nor_parts_it_from_the_next() -> None:
    inner, outer, later = span(KEYS, 26, 56, 0.9), span(KEYS, 0, 76, 0.8), span(KEYS, 57, len(KEYS), 0.7)
    (passage,) = pack([inner, outer, later], packing(), words)
    assert (passage.hit, passage.text) == (inner, KEYS)
    assert passage.chunks == (outer.chunk, inner.chunk, later.chunk)


def test_chunks_with_a_gap_or_of_two_documents_stay_apart() -> None:
    assert len(pack([span(KEYS, 0, 25), span(KEYS, 26, 56)], packing(), words)) == 2
    assert len(pack([span(KEYS, 0, 25), span(LEAVE, 25, 50, document=2)], packing(), words)) == 2


def test_by_document_its_passages_are_together_in_text_order() -> None:
    hits = [span(KEYS, 57, 76, 0.9), hit(LEAVE, 0.8, document=2), span(KEYS, 0, 25, 0.7)]
    assert texts(pack(hits, packing(), words)) == [KEYS[57:76], LEAVE, KEYS[:25]]
    by_document = pack(hits, packing(order="document"), words)
    assert texts(by_document) == [KEYS[:25], KEYS[57:76], LEAVE]
    assert [passage.n for passage in by_document] == [1, 2, 3]


def test_a_passage_that_does_not_fit_is_skipped_and_shorter_ones_after_it_are_packed() -> None:
    hits = [hit("one two three", document=1), hit("a b c d e f", document=2), hit("four five", document=3)]
    assert texts(pack(hits, packing(tokens=5), words)) == ["one two three", "four five"]
    assert texts(pack(hits, packing(tokens=11), words)) == ["one two three", "a b c d e f", "four five"]


def test_headings_count_against_the_tokens_and_are_not_part_of_the_text() -> None:
    hits = [hit("one two three", 2.0, title="Sums", prefix="Sums\nOn counting"), hit("four five", 1.0, document=2)]
    assert len(pack(hits, packing(tokens=8), words)) == 2
    (passage,) = pack(hits, packing(tokens=7), words)
    assert (counted_text(passage), passage.text, passage.start) == (
        "Sums\nOn counting\none two three",
        "one two three",
        0,
    )


def test_joined_chunks_have_the_headings_of_the_first_one() -> None:
    hits = [span(KEYS, 25, 76, 0.9, prefix="Keys > Rotation"), span(KEYS, 0, 40, 0.8, prefix="Keys")]
    (passage,) = pack(hits, packing(), words)
    assert counted_text(passage) == f"Keys\n{KEYS[:76]}"


def test_title_and_note_count_against_the_tokens() -> None:
    hits = [hit("one two three", 2.0, title="On counting"), hit("four five", 1.0, document=2)]
    assert len(pack(hits, packing(tokens=7), words)) == 2
    assert len(pack(hits, packing(tokens=6), words)) == 1
    weighted = packing(strategy="weighted", tokens=10)
    assert len(pack(hits, weighted, words)) == 1
    assert sum(words(map(counted_text, pack(hits, replace(weighted, tokens=11), words)))) == 11


def test_overlapping_chunks_cost_their_common_text_once() -> None:
    hits = [span(KEYS, 0, 56), span(KEYS, 26, 76)]
    assert words([hit.chunk.text for hit in hits]) == [11, 11]
    assert texts(pack(hits, packing(tokens=15), words)) == [KEYS[:76]]


def test_past_the_most_passages_only_what_lengthens_one_comes_in() -> None:
    hits = [span(KEYS, 0, 26), hit(LEAVE, document=2), hit("Something else.", document=3), span(KEYS, 26, 56)]
    assert texts(pack(hits, packing(passages=2), words)) == [KEYS[:56], LEAVE]


@pytest.mark.parametrize(
    ("tokens", "text"), [(15, KEYS[:76]), (14, KEYS[:56]), (4, KEYS[:25]), (3, "Keys are rotated")]
)
def test_a_best_hit_above_the_tokens_is_the_only_passage_cut_after_a_sentence_or_else_a_word(
    tokens: int, text: str
) -> None:
    assert texts(pack([hit(KEYS), hit("So.", document=2)], packing(tokens=tokens), words)) == [text]


def test_a_word_above_the_tokens_is_cut_and_a_title_above_them_leaves_no_passage() -> None:
    assert texts(pack([hit("x" * 100)], packing(tokens=64), letters)) == ["x" * 64]
    assert pack([hit(KEYS, title="T" * 64)], packing(tokens=64), letters) == ()


def test_a_text_whose_triples_a_better_one_holds_is_left_out_and_a_longer_one_is_not() -> None:
    excerpt = hit("a rotated key WORKS for a day", document=2)
    assert drop_near_duplicates([hit(KEYS), excerpt], 0.9) == [hit(KEYS)]
    assert drop_near_duplicates([excerpt, hit(KEYS)], 0.9) == [excerpt, hit(KEYS)]


def test_the_share_of_triples_decides() -> None:
    better, worse = hit("a b c d e f"), hit("a b c d e g", document=2)  # 3 of 4 triples
    assert drop_near_duplicates([better, worse], 0.75) == [better]
    assert drop_near_duplicates([better, worse], 0.76) == [better, worse]


def test_a_number_of_its_own_keeps_a_text_whatever_else_is_equal() -> None:
    dose = "The usual dose for adults is {} mg a day, taken with water, not above the age of seventy years."
    hits = [hit(dose.format(number), document=number) for number in (10, 20, 10)]
    assert drop_near_duplicates(hits, 0.5) == hits[:2]


def test_less_than_three_words_equal_only_themselves() -> None:
    hits = [hit("See above."), hit("see above", document=2), hit("Above", document=3), hit("...", document=4)]
    assert [hit.chunk.document_id.int for hit in drop_near_duplicates(hits, 0.9)] == [1, 3, 4]


def test_weighted_notes_show_the_score_scaled_over_the_passages() -> None:
    scores = [9.0, 7.1, 7.0, 4.1, 4.0, -1.0]  # 1, .81, .8, .51, .5, 0
    hits = [hit(f"{score} is a score", score, document=n) for n, score in enumerate(scores)]
    assert notes(pack(hits, packing(strategy="weighted"), words)) == [
        "[HIGHLY RELEVANT]",
        "[HIGHLY RELEVANT]",
        "[RELEVANT]",
        "[RELEVANT]",
        "[POTENTIALLY RELEVANT]",
        "[POTENTIALLY RELEVANT]",
    ]


def test_equal_scores_are_all_highly_relevant() -> None:
    hits = [hit(KEYS, 0.3), hit(LEAVE, 0.3, document=2)]
    assert notes(pack(hits, packing(strategy="weighted"), words)) == ["[HIGHLY RELEVANT]"] * 2


def test_recency_is_newest_first_undated_last_in_either_order() -> None:
    hits = [
        hit("No date here.", document=1),
        hit("An old one.", document=2, updated_at=NOW - timedelta(days=800)),
        hit("The new one.", document=3, updated_at=NOW - timedelta(days=3)),
    ]
    for order in ("relevance", "document"):
        passages = pack(hits, packing(strategy="recency", order=order), words)
        assert texts(passages) == ["The new one.", "An old one.", "No date here."]
        assert notes(passages) == ["[3 days ago]", "[2 years ago]", "[undated]"]
        assert [passage.n for passage in passages] == [1, 2, 3]


def test_a_past_interaction_is_noted_with_its_question() -> None:
    metadata = {"turns_ago": 2, "question": "How often are keys rotated?"}
    (passage,) = pack([hit("Monthly.", metadata=metadata)], packing(strategy="recency"), words)
    assert counted_text(passage) == "[2 turns ago] Query: How often are keys rotated? Answer:\nMonthly."


def test_the_template_is_filled_before_the_text() -> None:
    template = "[{n}] {title} ({uri}, {section}), {age}:\n{text}\n"
    hits = [hit(KEYS, title="Keys {n}", updated_at=NOW - timedelta(days=1), chunk={"section": "Use > Rotation"})]
    (passage,) = pack(hits, packing(strategy="template", template=template), words)
    assert passage.note == "[1] Keys {n} (file:///1.md, Use > Rotation), 1 day ago:"
    assert passage.text == KEYS


@pytest.mark.parametrize(
    ("template", "rule"),
    [
        ("{titel}\n{text}", r"packing\.template can contain only \{title\}, \{uri\}, .*, \{text\}, got \{titel\}"),
        ("{title.upper}{text}", r"got \{title.upper\}"),
        ("{title!r:>{n}}{}{text}", r"got \{title!r:>\{n\}\}, \{\}"),
        ("{title}", r"packing\.template must contain \{text\} once, at its end, got '\{title\}'"),
        ("{text} ({title})", "once, at its end"),
        ("{text}{text}", "once, at its end"),
        ("{{text}}", "once, at its end"),
        ("{title {text}", r"packing\.template must have balanced braces"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused_by_name(template: str, rule: str) -> None:
    with pytest.raises(ConfigError, match=rule):
        packing(template=template)


@pytest.mark.parametrize(
    ("ago", "text"),
    [
        (timedelta(days=-5), "today"),
        (timedelta(hours=23), "today"),
        (timedelta(hours=47), "1 day ago"),
        (timedelta(days=29), "29 days ago"),
        (timedelta(days=59), "1 month ago"),
        (timedelta(days=364), "12 months ago"),
        (timedelta(days=365), "1 year ago"),
    ],
)
def test_an_age_is_formatted_in_its_largest_whole_unit(ago: timedelta, text: str) -> None:
    assert age(NOW - ago, NOW) == text


sentences = st.lists(st.sampled_from(["key", "day", "new", "10", "mg", "lock", "Ω"]), min_size=1, max_size=6).map(
    lambda terms: " ".join(terms).capitalize() + "."
)
documents = st.lists(st.lists(sentences, min_size=3, max_size=12).map(" ".join), min_size=1, max_size=3)


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[str], list[Hit]]:
    """Documents, and hits in them that overlap, touch, hold one another or do not, best first."""
    written = draw(documents)
    hits = []
    for _ in range(draw(st.integers(1, 12))):
        document = draw(st.integers(0, len(written) - 1))
        ends = st.integers(0, len(written[document]) // 5).map(lambda n: 5 * n)
        start, end = sorted(draw(st.tuples(ends, ends).filter(lambda pair: pair[0] != pair[1])))
        origin = {"title": draw(st.sampled_from(["", "Keys"])), "updated_at": NOW - timedelta(days=document)}
        hits.append(span(written[document], start, end, draw(st.integers(-9, 9)), document, **origin))
    unique = {hit.chunk.start + 1000 * hit.chunk.document_id.int: hit for hit in hits}
    return written, sorted(unique.values(), key=lambda hit: -hit.score)


packings = st.builds(
    packing,
    strategy=st.sampled_from(["concatenate", "weighted", "recency", "template"]),
    order=st.sampled_from(["relevance", "document"]),
    passages=st.integers(1, 4),
    tokens=st.integers(64, 300),
    near_duplicate=st.sampled_from([0.5, 0.9, 1.0]),
    template=st.just("{n} {title} {age} {text}"),
)


@calmly
@given(corpora(), packings)
def test_passages_are_spans_of_their_documents_that_keep_every_limit(
    corpus: tuple[list[str], list[Hit]], packing: Packing
) -> None:
    written, hits = corpus
    passages = pack(hits, packing, letters)
    chunks = [chunk.id for passage in passages for chunk in passage.chunks]
    assert [passage.n for passage in passages] == list(range(1, len(passages) + 1))
    assert len(passages) <= packing.passages
    assert sum(letters([counted_text(passage) for passage in passages])) <= packing.tokens
    assert len(chunks) == len(set(chunks))
    assert hits[0].chunk.id in chunks
    for passage in passages:
        assert passage.text
        assert written[passage.hit.chunk.document_id.int][passage.start : passage.end] == passage.text


@calmly
@given(corpora(), packings)
def test_a_passage_is_its_chunks_in_text_order_without_gaps_and_touches_no_other(
    corpus: tuple[list[str], list[Hit]], packing: Packing
) -> None:
    passages = pack(corpus[1], replace(packing, tokens=10_000), letters)
    for passage in passages:
        assert list(passage.chunks) == sorted(passage.chunks, key=lambda chunk: (chunk.start, chunk.end))
        covered = {place for chunk in passage.chunks for place in range(chunk.start, chunk.end)}
        assert covered == set(range(passage.start, passage.end))
    spans = sorted((passage.hit.chunk.document_id, passage.start, passage.end) for passage in passages)
    for (one, _, end), (other, start, _) in pairwise(spans):
        assert one != other or end < start


@calmly
@given(corpora(), packings)
def test_passages_are_in_the_requested_order(corpus: tuple[list[str], list[Hit]], packing: Packing) -> None:
    _, hits = corpus
    passages = pack(hits, packing, letters)
    ranks = [min(hits.index(hit) for hit in hits if hit.chunk in passage.chunks) for passage in passages]
    assert [hits[rank] for rank in ranks] == [passage.hit for passage in passages]
    if packing.strategy == "recency":
        ages = [NOW - (passage.hit.origin.updated_at or NOW) for passage in passages]
        assert ages == sorted(ages)
    elif packing.order == "relevance":
        assert ranks == sorted(ranks)
    else:
        best: dict[UUID, int] = {}
        for passage, rank in zip(passages, ranks, strict=True):
            document = passage.hit.chunk.document_id
            best[document] = min(rank, best.get(document, rank))
        places = [(best[passage.hit.chunk.document_id], passage.start) for passage in passages]
        assert places == sorted(places)


@calmly
@given(corpora())
def test_a_dropped_duplicate_has_its_words_in_a_better_hit(corpus: tuple[list[str], list[Hit]]) -> None:
    _, hits = corpus
    remaining = drop_near_duplicates(hits, 1.0)
    assert remaining == [hit for hit in hits if hit in remaining]
    for place, candidate in enumerate(hits):
        assert candidate in remaining or any(
            vocabulary(candidate) <= vocabulary(better) for better in hits[:place] if better in remaining
        )


def vocabulary(hit: Hit) -> set[str]:
    return set(hit.chunk.text.casefold().replace(".", " ").split())
