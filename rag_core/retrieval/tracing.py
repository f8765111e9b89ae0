"""The facts of one document's way through a retriever, for `why.verdict`."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from rag_core.errors import RagError, UsageError
from rag_core.protocols import Leg, Ranking, Retriever
from rag_core.retrieval.fusion import Candidates, merge_rankings
from rag_core.retrieval.hybrid import Fusion, Hybrid
from rag_core.retrieval.legs import LegRetriever, RetrieverLeg, translate_errors
from rag_core.retrieval.per_document import PerDocument
from rag_core.retrieval.reranked import Reranked
from rag_core.retrieval.signals import Signals
from rag_core.retrieval.why import UNRANKED, ChunkRank, Facts, LegFacts, SpanFacts, StepFacts
from rag_core.stage import recording
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.document_trace import DocumentTrace, trace_document
from rag_core.types import Chunk, Hit, Query, StageReport

PERCENT = 0.01
"""How exactly a weight is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """A combinator: its stage, how many it reads of what it holds, and its cap of hits a document."""

    stage: str
    depth: int
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Traced:
    """A leg: all that it can rank, and what it handed on in this search."""

    everything: Ranking
    handed_on: Ranking
    error: str
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """One search: its reports and hits, and the document's chunks with those among them that are looked for."""

    query: Query
    k: int
    reports: Mapping[str, StageReport]
    hits: Sequence[Hit]
    chunks: Mapping[UUID, Chunk]
    targets: Collection[UUID]

    def place(self, ranking: Ranking) -> ChunkRank:
        """Of the best target."""
        found = ((rank, id, score) for rank, (id, score) in enumerate(ranking, start=1) if id in self.targets)
        rank, id, score = next(found, (0, None, 0.0))
        return ChunkRank(chunk=self.chunks[id].ordinal, rank=rank, score=score) if id else UNRANKED

    def in_document(self, ranking: Ranking) -> int:
        """The best target's rank among the chunks of its document."""
        return self.place([(id, score) for id, score in ranking if id in self.chunks]).rank

    def answered(self, stage: str) -> bool:
        return stage in self.reports and not self.reports[stage].error

    def given(self, stage: str) -> Ranking:
        scores = {hit.chunk.id: hit.scores.get(stage, hit.score) for hit in self.hits}
        return [(id, scores.get(id, 0.0)) for id in self.reports[stage].ranking]


async def trace(corpus: CorpusReader, retriever: Retriever, query: Query, k: int, uri: str, span: str = "") -> Facts:
    """Asks the question as it is, and then every leg for all that it can rank, in one snapshot."""
    async with corpus.reading(query):
        async with corpus.snapshot(query) as snapshot:
            stored = await trace_document(snapshot, query, uri)
        looked_for = _span(stored, span) if span and stored.chunks else None
        targets = _targets(stored, looked_for)
        if not targets:
            return Facts(stored=stored, k=k, span=looked_for)
        readers, innermost = _taken_apart(retriever)
        way = await _searched(retriever, readers, query, k, stored, targets)
        readers = [reader for reader in readers if way.answered(reader.stage)]
        legs, name, ranking = await _ranked(innermost, way, readers, stored.collection_chunks)
    steps = tuple(_steps(name, ranking, readers, way))
    hit = way.place([(hit.chunk.id, hit.score) for hit in way.hits[:k]])
    return Facts(stored=stored, k=k, span=looked_for, legs=legs, steps=steps, hit=hit)


def _span(stored: DocumentTrace, words: str) -> SpanFacts:
    """Where the words stand in chunks as a whole, or else in the text."""
    start = stored.text.find(words)
    end = start + len(words)
    whole = tuple(chunk.ordinal for chunk in stored.chunks if words in chunk.text)
    parts = tuple(chunk.ordinal for chunk in stored.chunks if start >= 0 and chunk.start < end and start < chunk.end)
    return SpanFacts(words=words, whole=whole, parts=() if whole else parts)


def _targets(stored: DocumentTrace, span: SpanFacts | None) -> frozenset[UUID]:
    """The chunks that may be found, and would do."""
    wanted = (chunk.id for chunk in stored.chunks if span is None or chunk.ordinal in span.whole)
    return stored.passing_chunks.intersection(wanted)


def _taken_apart(retriever: Retriever) -> tuple[list[_Reader], Retriever]:
    """The combinators in the order in which hits pass them, and what they hold in the end."""
    match retriever:
        case Reranked():
            reader = _Reader(stage="rerank", depth=retriever.depth)
        case Signals():
            reader = _Reader(stage="signals", depth=retriever.depth)
        case PerDocument():
            reader = _Reader(stage="per_document", depth=retriever.depth, most=retriever.max_hits)
        case _:
            return [], retriever
    readers, innermost = _taken_apart(retriever.retriever)
    return [*readers, reader], innermost


async def _searched(
    retriever: Retriever,
    readers: Sequence[_Reader],
    query: Query,
    k: int,
    stored: DocumentTrace,
    targets: Collection[UUID],
) -> _Way:
    """The last combinator reads no more for as many hits as it reads anyway: then their scores are known, too."""
    with recording() as stages:
        hits = await retriever.retrieve(query, max([k, *(reader.depth for reader in readers[-1:])]))
    return _Way(
        query=query,
        k=k,
        reports={report.stage: report for report in stages},
        hits=hits,
        chunks={chunk.id: chunk for chunk in stored.chunks},
        targets=targets,
    )


async def _ranked(
    innermost: Retriever, way: _Way, readers: Sequence[_Reader], chunks: int
) -> tuple[tuple[LegFacts, ...], str, Ranking]:
    """The legs, and the ranking that is made of them before anything is cut."""
    reach = _reach(readers, way.k)
    match innermost:
        case Hybrid():
            return await _fused(innermost, way, reach, max(innermost.depth, reach), chunks)
        case LegRetriever():
            name, leg = innermost.name, innermost.leg
        case _:
            name, leg = "retriever", RetrieverLeg(innermost)
    alone = await _traced(name, leg, way, reach, chunks)
    place = way.place(alone.everything)
    missed = name in way.reports and 0 < place.rank <= reach and not way.place(alone.handed_on).rank
    facts = LegFacts(leg=name, depth=reach, place=place, handed_on=place.rank > 0 and not missed)
    return (facts,), name, alone.everything


async def _fused(
    hybrid: Hybrid, way: _Way, reach: int, depth: int, chunks: int
) -> tuple[tuple[LegFacts, ...], str, Ranking]:
    traced = {name: await _traced(name, leg, way, depth, chunks) for name, leg in hybrid.legs.items()}
    candidates = merge_rankings({name: each.handed_on for name, each in traced.items() if not each.error})
    for name in candidates.legs:
        candidates = await _filled(candidates, name, hybrid.legs[name], way)
    shares = _shares(hybrid.fusion, candidates.legs)
    legs = tuple(
        LegFacts(
            leg=name,
            depth=depth,
            place=way.place(each.everything),
            handed_on=way.place(each.handed_on).rank > 0,
            weight=shares.get(name, 0.0),
            weight_needed=_needed(hybrid.fusion, candidates, shares, name, way, reach),
            error=each.error,
            unknown=each.unknown,
        )
        for name, each in traced.items()
    )
    return legs, "fusion", hybrid.fusion(candidates)


async def _traced(name: str, leg: Leg, way: _Way, depth: int, chunks: int) -> _Traced:
    """All that it can rank is one more than there is, so that no index that may miss some is used for it. A retriever's
    scores depend on how many it is asked for: what it handed on is asked for again."""
    report = way.reports.get(name, StageReport(stage=name, seconds=0.0))
    try:
        everything = await translate_errors(leg.rank(way.query, chunks + 1))
        again = await translate_errors(leg.rank(way.query, depth)) if isinstance(leg, RetrieverLeg) else everything
    except UsageError:
        raise
    except RagError as error:
        return _Traced(everything=[], handed_on=[], error=report.error or str(error), unknown=True)
    scores = dict(again)
    handed_on = [(id, scores[id]) for id in report.ranking if id in scores]
    return _Traced(everything=everything, handed_on=handed_on, error=report.error)


async def _filled(candidates: Candidates, name: str, leg: Leg, way: _Way) -> Candidates:
    """As hybrid does it: a leg whose scores failed keeps those that it gave."""
    missing = candidates.find_unscored(name)
    if not missing or not way.answered(f"{name} scores"):
        return candidates
    return candidates.with_scores(name, await leg.score(way.query, missing))


def _shares(fusion: Fusion, legs: Sequence[str]) -> dict[str, float]:
    """Nothing where the fusion takes no weights."""
    given = fusion.keywords.get("weights") if isinstance(fusion, partial) else None
    if given is None:
        return {}
    own = {leg: given.get(leg, 0.0) for leg in legs}
    total = sum(own.values())
    return {leg: weight / total if total else 1 / len(own) for leg, weight in own.items()}


def _needed(
    fusion: Fusion, candidates: Candidates, shares: Mapping[str, float], leg: str, way: _Way, reach: int
) -> float:
    """The least share of the leg, above its own, with which a target is within reach."""
    if leg not in shares or not isinstance(fusion, partial):
        return 0.0
    rest = 1 - shares[leg]
    for percent in range(int(shares[leg] / PERCENT) + 1, 101):
        share = percent * PERCENT
        weights = {name: share if name == leg else own / rest * (1 - share) for name, own in shares.items()}
        if 0 < way.place(fusion.func(candidates, weights)).rank <= reach:
            return share
    return 0.0


def _steps(name: str, ranking: Ranking, readers: Sequence[_Reader], way: _Way) -> Iterator[StepFacts]:
    """Until one loses all that is looked for. A combinator that failed is none."""
    most, in_document = 0, 0
    for behind in range(len(readers) + 1):
        after = readers[behind:]
        reader, passes = (after[0].stage if after else "k"), _reach(after, way.k)
        place = way.place(ranking)
        yield StepFacts(step=name, place=place, passes=passes, reader=reader, most=most, in_document=in_document)
        if not 0 < place.rank <= passes or not after:
            return
        name, most, in_document = after[0].stage, after[0].most, way.in_document(ranking)
        ranking = way.given(name)


def _reach(readers: Sequence[_Reader], k: int) -> int:
    """How far down a ranking is read by the first of these, for as many as the others want of it."""
    return max([k, *(reader.depth for reader in readers)])
