"""The trace of one document through the legs and steps of a retriever: the facts for `why.verdict`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from rag_core.errors import RagError, UsageError
from rag_core.protocols import Leg, OuterRetriever, Ranking, Retriever
from rag_core.retrieval.fusion import Candidates, leg_shares, merge_rankings
from rag_core.retrieval.hybrid import Fusion, Hybrid
from rag_core.retrieval.legs import LegRetriever, RetrieverLeg, translate_errors
from rag_core.retrieval.per_document import PerDocument
from rag_core.retrieval.why import UNRANKED, ChunkRank, Facts, LegFacts, SpanFacts, StepFacts
from rag_core.stage import recording
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.document_trace import DocumentTrace, trace_document
from rag_core.types import Chunk, Hit, Query, StageReport

WEIGHT_STEP = 0.01
"""The precision of `weight_needed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LegTrace:
    """The full ranking of a leg, and the part that it returned in the traced search.

    `unknown` is True if the leg failed when it was traced.
    """

    full_ranking: Ranking
    handed_on: Ranking
    error: str
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Search:
    """The traced search. `chunks` are those of the document, and `targets` those of them that count as a hit."""

    query: Query
    k: int
    reports: Mapping[str, StageReport]
    hits: Sequence[Hit]
    chunks: Mapping[UUID, Chunk]
    targets: Collection[UUID]

    def best_target(self, ranking: Ranking) -> ChunkRank:
        targets = ((rank, id, score) for rank, (id, score) in enumerate(ranking, start=1) if id in self.targets)
        rank, id, score = next(targets, (0, None, 0.0))
        return ChunkRank(chunk=self.chunks[id].ordinal, rank=rank, score=score) if id else UNRANKED

    def rank_in_document(self, ranking: Ranking) -> int:
        """The best target's rank among the chunks of its document."""
        return self.best_target([(id, score) for id, score in ranking if id in self.chunks]).rank

    def has_succeeded(self, stage: str) -> bool:
        return stage in self.reports and not self.reports[stage].error

    def stage_ranking(self, stage: str) -> Ranking:
        scores = {hit.chunk.id: hit.scores.get(stage, hit.score) for hit in self.hits}
        return [(id, scores.get(id, 0.0)) for id in self.reports[stage].ranking]


async def trace(corpus: CorpusReader, retriever: Retriever, query: Query, k: int, uri: str, span: str = "") -> Facts:
    """Searches with the retriever, and then with each leg without a limit, in one snapshot."""
    async with corpus.reading(query):
        async with corpus.snapshot(query) as snapshot:
            stored = await trace_document(snapshot, query, uri)
        span_facts = _find_span(stored, span) if span and stored.chunks else None
        targets = stored.passing_chunks.intersection(
            chunk.id for chunk in stored.chunks if span_facts is None or chunk.ordinal in span_facts.whole
        )
        if not targets:
            return Facts(stored=stored, k=k, span=span_facts)
        outer, innermost = _split_outer(retriever)
        search = await _run_search(retriever, outer, query, k, stored, targets)
        outer = [step for step in outer if search.has_succeeded(step.stage_name)]
        legs, name, ranking = await _trace_legs(innermost, search, outer, stored.collection_chunks)
    steps = tuple(_trace_steps(name, ranking, outer, search))
    hit = search.best_target([(hit.chunk.id, hit.score) for hit in search.hits[:k]])
    return Facts(stored=stored, k=k, span=span_facts, legs=legs, steps=steps, hit=hit)


def _find_span(stored: DocumentTrace, words: str) -> SpanFacts:
    """The chunks that contain the words. If there are none: the chunks that overlap them in the document's text."""
    start = stored.text.find(words)
    end = start + len(words)
    whole = tuple(chunk.ordinal for chunk in stored.chunks if words in chunk.text)
    parts = tuple(chunk.ordinal for chunk in stored.chunks if start >= 0 and chunk.start < end and start < chunk.end)
    return SpanFacts(words=words, whole=whole, parts=() if whole else parts)


def _split_outer(retriever: Retriever) -> tuple[list[OuterRetriever], Retriever]:
    """The outer retrievers, the innermost first, and the retriever that the innermost one reads."""
    if not isinstance(retriever, OuterRetriever):
        return [], retriever
    outer, innermost = _split_outer(retriever.retriever)
    return [*outer, retriever], innermost


async def _run_search(
    retriever: Retriever,
    outer: Sequence[OuterRetriever],
    query: Query,
    k: int,
    stored: DocumentTrace,
    targets: Collection[UUID],
) -> _Search:
    """Requests as many hits as the last retriever reads in any case, so that the scores of all of them are known."""
    with recording() as stages:
        hits = await retriever.retrieve(query, _reading_depth(outer[-1:], k))
    return _Search(
        query=query,
        k=k,
        reports={report.stage: report for report in stages},
        hits=hits,
        chunks={chunk.id: chunk for chunk in stored.chunks},
        targets=targets,
    )


async def _trace_legs(
    innermost: Retriever, search: _Search, outer: Sequence[OuterRetriever], chunk_count: int
) -> tuple[tuple[LegFacts, ...], str, Ranking]:
    """The facts of the legs, and the name and the full ranking of the first step after them."""
    depth = _reading_depth(outer, search.k)
    match innermost:
        case Hybrid():
            return await _trace_hybrid(innermost, search, depth, chunk_count)
        case LegRetriever():
            name, leg = innermost.name, innermost.leg
        case _:
            name, leg = "retriever", RetrieverLeg(innermost)
    leg_trace = await _trace_leg(name, leg, search, depth, chunk_count)
    place = search.best_target(leg_trace.full_ranking)
    is_missed = name in search.reports and 0 < place.rank <= depth and not search.best_target(leg_trace.handed_on).rank
    facts = LegFacts(leg=name, depth=depth, place=place, handed_on=place.rank > 0 and not is_missed)
    return (facts,), name, leg_trace.full_ranking


async def _trace_hybrid(
    hybrid: Hybrid, search: _Search, reading_depth: int, chunk_count: int
) -> tuple[tuple[LegFacts, ...], str, Ranking]:
    depth = max(hybrid.depth, reading_depth)
    traces = {name: await _trace_leg(name, leg, search, depth, chunk_count) for name, leg in hybrid.legs.items()}
    candidates = merge_rankings({name: trace.handed_on for name, trace in traces.items() if not trace.error})
    for name in candidates.legs:
        unscored = candidates.find_unscored(name)
        if unscored and search.has_succeeded(f"{name} scores"):  # otherwise the search had no scores for them either
            candidates = candidates.with_scores(name, await hybrid.legs[name].score(search.query, unscored))
    weights = hybrid.fusion.keywords.get("weights") if isinstance(hybrid.fusion, partial) else None
    shares: dict[str, float] = {}
    if weights is not None:
        shares = dict(zip(candidates.legs, leg_shares(candidates.legs, weights).tolist(), strict=True))
    legs = tuple(
        LegFacts(
            leg=name,
            depth=depth,
            place=search.best_target(trace.full_ranking),
            handed_on=search.best_target(trace.handed_on).rank > 0,
            weight=shares.get(name, 0.0),
            weight_needed=_find_needed_weight(hybrid.fusion, candidates, shares, name, search, reading_depth),
            error=trace.error,
            unknown=trace.unknown,
        )
        for name, trace in traces.items()
    )
    return legs, "fusion", hybrid.fusion(candidates)


async def _trace_leg(name: str, leg: Leg, search: _Search, depth: int, chunk_count: int) -> _LegTrace:
    """Ranks all chunks with the leg. It requests one more than there are, which rules out an approximate index.

    The scores of a retriever depend on the number of hits requested, so it also repeats the search at `depth`.
    """
    report = search.reports.get(name, StageReport(stage=name, seconds=0.0))
    try:
        full_ranking = await translate_errors(leg.rank(search.query, chunk_count + 1))
        at_depth = full_ranking
        if isinstance(leg, RetrieverLeg):
            at_depth = await translate_errors(leg.rank(search.query, depth))
    except UsageError:
        raise
    except RagError as error:
        return _LegTrace(full_ranking=[], handed_on=[], error=report.error or str(error), unknown=True)
    scores = dict(at_depth)
    handed_on = [(id, scores[id]) for id in report.ranking if id in scores]
    return _LegTrace(full_ranking=full_ranking, handed_on=handed_on, error=report.error)


def _find_needed_weight(
    fusion: Fusion, candidates: Candidates, shares: Mapping[str, float], leg: str, search: _Search, depth: int
) -> float:
    """The least share of the leg, above its own, with which a target ranks within `depth`; 0 if there is none."""
    if leg not in shares or not isinstance(fusion, partial):
        return 0.0
    other_shares = 1 - shares[leg]
    for percent in range(int(shares[leg] / WEIGHT_STEP) + 1, 101):
        share = percent * WEIGHT_STEP
        weights = {
            name: share if name == leg else former / other_shares * (1 - share) for name, former in shares.items()
        }
        if 0 < search.best_target(fusion.func(candidates, weights)).rank <= depth:
            return share
    return 0.0


def _trace_steps(name: str, ranking: Ranking, outer: Sequence[OuterRetriever], search: _Search) -> Iterator[StepFacts]:
    """Yields the steps up to the first that lets no target through. `outer` are those that succeeded."""
    max_hits, rank_in_document = 0, 0
    for position in range(len(outer) + 1):
        following = outer[position:]
        passes = _reading_depth(following, search.k)
        place = search.best_target(ranking)
        yield StepFacts(
            step=name,
            place=place,
            passes=passes,
            reader=following[0].stage_name if following else "k",
            most=max_hits,
            in_document=rank_in_document,
        )
        if not 0 < place.rank <= passes or not following:
            return
        name = following[0].stage_name
        max_hits = following[0].max_hits if isinstance(following[0], PerDocument) else 0
        rank_in_document = search.rank_in_document(ranking)
        ranking = search.stage_ranking(name)


def _reading_depth(outer: Sequence[OuterRetriever], k: int) -> int:
    """The depth to which the first retriever reads: it must also supply the later ones, and k hits."""
    return max([k, *(retriever.depth for retriever in outer)])
