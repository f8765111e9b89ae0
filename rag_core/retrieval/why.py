"""Why a document is not (higher) among a question's hits: the first step that lost it, and what would have kept it.

`verdict` decides over facts alone; `tracing.py` gathers them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from rag_core.storage.document_trace import DocumentTrace

Step: TypeAlias = Literal[
    "found",
    "never_stored",
    "other_collection",
    "deleted",
    "ingestion",
    "filter",
    "span",
    "leg",
    "depth",
    "fusion",
    "signals_depth",
    "signals",
    "rerank_depth",
    "rerank",
    "per_document_depth",
    "max_chunks_per_document",
    "k",
    "unexplained",
]

WIDER_FILTER = "ask without --filter, or with a wider one"
NAMES = {"fusion": "fusion", "signals": "signals", "rerank": "reranker", "per_document": "cap by document"}
DEPTHS: Mapping[str, Step] = {
    "signals": "signals_depth",
    "rerank": "rerank_depth",
    "per_document": "per_document_depth",
}
"""How a step's loss of what stands below its depth is called."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRank:
    """Of a chunk, by its ordinal, in a ranking; ranks count from 1. Rank 0: it is not in the ranking."""

    chunk: int
    rank: int
    score: float


UNRANKED = ChunkRank(chunk=-1, rank=0, score=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegFacts:
    """`place` is the true one of the document's best chunk, also below the `depth` to which the leg hands on; whether
    it did, says `handed_on`: a leg that failed did not, and one with an approximate index may miss a chunk.

    `error` is what kept the leg from answering; its place is `unknown` if it did not answer the second time either.
    `weight` is its share in the fusion, and `weight_needed` the least one that brings a chunk of the document as high
    as the next step reaches; 0 where none does, or nothing is weighed.
    """

    leg: str
    depth: int
    place: ChunkRank = UNRANKED
    handed_on: bool = False
    weight: float = 0.0
    weight_needed: float = 0.0
    error: str = ""
    unknown: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanFacts:
    """Which chunks, by their ordinals, hold the looked-for words: as a `whole`, or `parts` of them."""

    words: str
    whole: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """A step behind the legs (`fusion`, or a leg that is alone; `signals`, `per_document`, `rerank`): the place that it
    gave, of which `passes` go on to `reader`, the next step or `k`.

    The place is of a chunk that came so far. Of `per_document`, which only drops, rank 0 says that it dropped it;
    `most` is its cap then, and `in_document` how high the chunk ranks among its document's.
    """

    step: str
    place: ChunkRank
    passes: int
    reader: str
    most: int = 0
    in_document: int = 0

    @property
    def kept(self) -> bool:
        return 0 < self.place.rank <= self.passes


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Places are those of the document's best chunk; with a span, of the best one that holds it.

    `steps` are in the retriever's order, up to the first that lets no chunk of the document through.
    `hit` is its place among the hits, of which `k` were asked for.
    """

    stored: DocumentTrace
    k: int
    span: SpanFacts | None = None
    legs: tuple[LegFacts, ...] = ()
    steps: tuple[StepFacts, ...] = ()
    hit: ChunkRank = UNRANKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`remedies` would have brought the document past this step, each by itself."""

    step: Step
    reason: str
    remedies: tuple[str, ...] = ()


def verdict(facts: Facts) -> Verdict:
    """The first step, in the order in which a document takes them, that lost it."""
    checks = (
        _not_stored,
        _not_searchable,
        _cut_span,
        _filtered_span,
        _found,
        _unreached,
        _cut_on_the_way,
        _unexplained,
    )
    return next(found for check in checks for found in check(facts))


def _not_stored(facts: Facts) -> Iterator[Verdict]:
    stored = facts.stored
    if stored.status:
        return
    if stored.deleted:
        by = f"job {stored.job} deleted it" if stored.job else "it was deleted by command, or with its source"
        remedies: tuple[str, ...] = ("`rag ingest` its source again, if it is still there",)
        yield Verdict(step="deleted", reason=f"{stored.collection} held it until {by}", remedies=remedies)
    elif stored.other_collections:
        reason = f"{stored.collection} does not hold it, but {_listed(stored.other_collections)} does"
        remedies = (
            *(f"--collection {name}" for name in stored.other_collections),
            f"ingest it into {stored.collection}",
        )
        yield Verdict(step="other_collection", reason=reason, remedies=remedies)
    else:
        ingest, spell = "`rag ingest` a source that has it", "spell the uri as `rag documents list` does"
        reason = "no job has ever taken it in, or only others may read it"
        yield Verdict(step="never_stored", reason=reason, remedies=(ingest, spell, "--group, for its members"))


def _not_searchable(facts: Facts) -> Iterator[Verdict]:
    stored = facts.stored
    if stored.status in ("failed", "skipped", "quarantined") and not stored.chunks:
        reason = f"it is {stored.status}, at {stored.stage}: {stored.reason}"
        yield Verdict(step="ingestion", reason=reason, remedies=_ingestion_remedies(stored))
    if not stored.passing_chunks:
        reason = f"the filter lets none of its {_counted(len(stored.chunks), 'chunk')} pass"
        yield Verdict(step="filter", reason=reason, remedies=(WIDER_FILTER,))


def _ingestion_remedies(stored: DocumentTrace) -> tuple[str, ...]:
    if stored.status == "quarantined":
        return ("`rag documents release` it, then `rag ingest`",)
    if stored.retryable:
        return ("`rag ingest` its source again: it is tried anew",)
    return ("repair the document at its source, then `rag ingest`",)


def _cut_span(facts: Facts) -> Iterator[Verdict]:
    span = facts.span
    if span is None or span.whole:
        return
    if not span.parts:
        fix = ("spell it as `rag documents text` does",)
        yield Verdict(step="span", reason="its stored text does not hold the span", remedies=fix)
    else:
        reason = f"no chunk holds the span whole: chunks {_listed(span.parts)} hold parts of it"
        remedies = ("a higher chunking.overlap or chunking.tokens, then `rag ingest`", "--context 1 shows it whole")
        yield Verdict(step="span", reason=reason, remedies=remedies)


def _filtered_span(facts: Facts) -> Iterator[Verdict]:
    span, stored = facts.span, facts.stored
    if span and not any(chunk.id in stored.passing_chunks for chunk in stored.chunks if chunk.ordinal in span.whole):
        reason = f"the filter lets no chunk pass that holds the span: {_listed(span.whole)}"
        yield Verdict(step="filter", reason=reason, remedies=(WIDER_FILTER,))


def _found(facts: Facts) -> Iterator[Verdict]:
    if facts.hit.rank:
        yield Verdict(step="found", reason=f"it is hit {facts.hit.rank} of the {facts.k} asked for")


def _unreached(facts: Facts) -> Iterator[Verdict]:
    if any(leg.handed_on for leg in facts.legs):
        return
    missed = [leg for leg in facts.legs if leg.unknown or 0 < leg.place.rank <= leg.depth]
    if missed:
        reason = "; ".join(f"{leg.leg}{_which(leg)} {_missed(leg)}" for leg in missed)
        yield Verdict(step="leg", reason=reason, remedies=tuple(f"an answer of {leg.leg}" for leg in missed))
        return
    ranked = sorted((leg for leg in facts.legs if leg.place.rank), key=lambda leg: leg.place.rank)
    reason = "; ".join(f"{leg.leg} {_below(leg)}" for leg in facts.legs)
    remedies = tuple(f"a depth of {leg.place.rank}, for {leg.leg}" for leg in ranked)
    yield Verdict(step="depth", reason=reason, remedies=remedies or ("words of the document in the question",))


def _which(leg: LegFacts) -> str:
    return f", which ranks it {leg.place.rank}," if leg.place.rank else ""


def _missed(leg: LegFacts) -> str:
    return f"failed: {leg.error}" if leg.error else "missed it: its index is approximate"


def _below(leg: LegFacts) -> str:
    return f"ranks it {leg.place.rank}, and hands on {leg.depth}" if leg.place.rank else "does not rank it at all"


def _cut_on_the_way(facts: Facts) -> Iterator[Verdict]:
    before = [leg.place.rank for leg in facts.legs if leg.handed_on]
    for step in facts.steps:
        if step.place.rank == 0:
            yield _dropped(step)
        elif step.place.rank > step.passes:
            yield _outvoted(facts, step) or _moved(step, min(before)) or _below_reach(step)
        before = [step.place.rank]


def _unexplained(facts: Facts) -> Iterator[Verdict]:
    """As of a retriever of somebody's own that ranks otherwise when it is asked for more."""
    last = facts.steps[-1].step if facts.steps else "the retriever"
    reason = f"asked again, {last} ranks it so that it would be a hit: the retriever does not answer twice alike"
    yield Verdict(step="unexplained", reason=reason)


def _dropped(step: StepFacts) -> Verdict:
    reason = f"{step.in_document - 1} chunks of the document rank above it, and {step.most} may come"
    remedies = (f"max_chunks_per_document {step.in_document}", "--context 1, if it stands next to a hit")
    return Verdict(step="max_chunks_per_document", reason=reason, remedies=remedies)


def _outvoted(facts: Facts, step: StepFacts) -> Verdict | None:
    """By the other legs, where a weight would have helped."""
    legs = [leg for leg in facts.legs if leg.handed_on and leg.place.rank <= step.passes and leg.weight_needed]
    if step.step != "fusion" or not legs:
        return None
    weighed = _listed([f"{leg.leg} ranks it {leg.place.rank} but weighs {leg.weight:.2f}" for leg in legs])
    weights = tuple(f"a weight of {leg.weight_needed:.2f} for {leg.leg}" for leg in legs)
    reason = f"{weighed}; the fusion ranks it {step.place.rank}, and {step.passes} go on"
    return Verdict(step="fusion", reason=reason, remedies=(*weights, _deeper(step)))


def _moved(step: StepFacts, before: int) -> Verdict | None:
    """By a step that had it high enough, and put it too low."""
    if step.step not in ("rerank", "signals") or before > step.passes:
        return None
    reason = f"the {NAMES[step.step]} moved it from {before} to {step.place.rank}, and {step.passes} go on"
    other = "another reranker, or none" if step.step == "rerank" else "lower weights of the signals"
    return Verdict(
        step="rerank" if step.step == "rerank" else "signals", reason=reason, remedies=(_deeper(step), other)
    )


def _below_reach(step: StepFacts) -> Verdict:
    place = f"{NAMES.get(step.step, step.step)} ranks it {step.place.rank}"
    if step.reader == "k":
        return Verdict(step="k", reason=f"{place}, and {step.passes} were asked for", remedies=(_deeper(step),))
    reason = f"{place}, and the {NAMES[step.reader]} reads {step.passes}"
    return Verdict(step=DEPTHS[step.reader], reason=reason, remedies=(_deeper(step),))


def _deeper(step: StepFacts) -> str:
    return f"-k {step.place.rank}" if step.reader == "k" else f"{DEPTHS[step.reader]} {step.place.rank}"


def _listed(values: "tuple[object, ...] | list[str]") -> str:
    *before, last = map(str, values)
    return f"{', '.join(before)} and {last}" if before else last


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
