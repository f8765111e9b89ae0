"""The reason why a document is missing from a question's hits: the step that lost it, and remedies.

`verdict` is a pure function of the facts that `tracing.py` collects.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rag_core.storage.document_trace import DocumentTrace

WIDER_FILTER = "search without --filter, or with a wider one"
NAMES = {"fusion": "fusion", "signals": "signals", "rerank": "reranker", "per_document": "limit per document"}
REMEDIES = {"rerank": "another reranker, or none", "signals": "lower weights of the signals"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRank:
    """The rank of a chunk, given by its ordinal, in a ranking. Ranks count from 1; rank 0 means not in the ranking."""

    chunk: int
    rank: int
    score: float


UNRANKED = ChunkRank(chunk=-1, rank=0, score=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LegFacts:
    """The exact rank of the document's best chunk in a leg, even if it is below the leg's `depth`.

    `handed_on` is True if the leg returned the chunk in the traced search. It is False if the leg failed, and can be
    False if its index is approximate. `error` is the reason why the leg failed. `unknown` is True if the leg also
    failed when it was traced; then it has no rank.

    `weight` is the leg's share in the fusion. `weight_needed` is the least share with which the fusion ranks a chunk of
    the document within the depth that the next step reads. It is 0 if there is none, or if the fusion has no weights.
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
    """The ordinals of the chunks that contain the span `words`: `whole` the entire span, `parts` some of it."""

    words: str
    whole: tuple[int, ...] = ()
    parts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFacts:
    """A step after the legs (`fusion` or the only leg; then stages of outer retrievers) and its rank of a chunk.

    The chunk is the document's best one that reached the step. The first `passes` chunks are read by `reader`: the next
    step, or `k`. Rank 0 means that the step dropped the chunk. In `per_document`, `most` is the limit of hits per
    document, and `in_document` the chunk's rank among the chunks of its document.
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
    """The facts about a document in one search. Ranks are those of its best chunk, or of its best one with the span.

    `steps` are in the retriever's order and end with the first that lets no chunk of the document through.
    `hit` is the chunk's rank among the `k` hits that were requested.
    """

    stored: DocumentTrace
    k: int
    span: SpanFacts | None = None
    legs: tuple[LegFacts, ...] = ()
    steps: tuple[StepFacts, ...] = ()
    hit: ChunkRank = UNRANKED


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The step that lost the document, and the reason. Each of the `remedies` alone would have prevented it.

    `step` is `never_stored`, `other_collection`, `deleted`, `ingestion`, `filter`, `span`, `leg`, `depth` (of the
    legs), `fusion`, `max_chunks_per_document`, `k`, or the stage of an outer retriever, such as `rerank`. It is
    `rerank_depth` if the chunk ranks too low to be reranked. `found` and `unexplained` mean that no step lost it.
    """

    step: str
    reason: str
    remedies: tuple[str, ...] = ()


def verdict(facts: Facts) -> Verdict:
    """Names the first step that lost the document, in the order in which a search runs them."""
    loss = _diagnose_storage(facts.stored)
    if loss is None and facts.span:
        loss = _diagnose_span(facts.span, facts.stored)
    if loss is None and facts.hit.rank:
        return Verdict(step="found", reason=f"it is hit {facts.hit.rank} of the {facts.k} requested")
    loss = loss or _diagnose_legs(facts.legs) or _diagnose_steps(facts)
    if loss is not None:
        return loss
    # a custom retriever whose ranking depends on the number of hits requested
    last = facts.steps[-1].step if facts.steps else "the retriever"
    reason = f"in a second search, {last} ranks it high enough for a hit: the retriever's rankings are not repeatable"
    return Verdict(step="unexplained", reason=reason)


def _diagnose_storage(stored: DocumentTrace) -> Verdict | None:
    if not stored.status:
        return _absence_verdict(stored)
    if stored.status in ("failed", "skipped", "quarantined") and not stored.chunks:
        reason = f"its status is {stored.status}, from stage {stored.stage}: {stored.reason}"
        if stored.status == "quarantined":
            remedy = "`rag documents release` it, then `rag ingest`"
        elif stored.retryable:
            remedy = "`rag ingest` its source again: the document will be retried"
        else:
            remedy = "repair the document in its source, then `rag ingest`"
        return Verdict(step="ingestion", reason=reason, remedies=(remedy,))
    if not stored.passing_chunks:
        count = len(stored.chunks)
        reason = f"none of its {count} {'chunk' if count == 1 else 'chunks'} passes the filter"
        return Verdict(step="filter", reason=reason, remedies=(WIDER_FILTER,))
    return None


def _absence_verdict(stored: DocumentTrace) -> Verdict:
    if stored.deleted:
        by = f"job {stored.job} deleted it" if stored.job else "it was deleted by command, or with its source"
        remedies: tuple[str, ...] = ("`rag ingest` its source again, if the source still contains it",)
        return Verdict(step="deleted", reason=f"{stored.collection} contained it until {by}", remedies=remedies)
    if stored.other_collections:
        reason = f"{stored.collection} does not contain it, but {_join_with_and(stored.other_collections)} does"
        options = [f"--collection {name}" for name in stored.other_collections]
        return Verdict(
            step="other_collection", reason=reason, remedies=(*options, f"ingest it into {stored.collection}")
        )
    remedies = (
        "`rag ingest` a source that contains it",
        "write the uri as `rag documents list` prints it",
        "--group, if only the members of a group can read it",
    )
    reason = "no job has ever stored it, or only members of other groups can read it"
    return Verdict(step="never_stored", reason=reason, remedies=remedies)


def _diagnose_span(span: SpanFacts, stored: DocumentTrace) -> Verdict | None:
    if not span.whole and not span.parts:
        remedies: tuple[str, ...] = ("copy the span from the output of `rag documents text`",)
        return Verdict(step="span", reason="its stored text does not contain the span", remedies=remedies)
    if not span.whole:
        reason = f"no chunk contains the entire span: chunks {_join_with_and(span.parts)} contain parts of it"
        remedies = (
            "a higher chunking.overlap or chunking.tokens, then `rag ingest`",
            "--context 1, to show the adjacent chunks",
        )
        return Verdict(step="span", reason=reason, remedies=remedies)
    if not any(chunk.id in stored.passing_chunks for chunk in stored.chunks if chunk.ordinal in span.whole):
        reason = f"the filter excludes every chunk with the span: {_join_with_and(span.whole)}"
        return Verdict(step="filter", reason=reason, remedies=(WIDER_FILTER,))
    return None


def _diagnose_legs(legs: Sequence[LegFacts]) -> Verdict | None:
    """Names the legs that failed or missed the document; if there are none, the depth of the legs is too low."""
    if any(leg.handed_on for leg in legs):
        return None
    at_fault = [leg for leg in legs if leg.unknown or 0 < leg.place.rank <= leg.depth]
    if at_fault:
        reason = "; ".join(map(_describe_fault, at_fault))
        return Verdict(step="leg", reason=reason, remedies=tuple(f"an answer from {leg.leg}" for leg in at_fault))
    ranked = sorted((leg for leg in legs if leg.place.rank), key=lambda leg: leg.place.rank)
    remedies = tuple(f"a depth of {leg.place.rank} for {leg.leg}" for leg in ranked)
    reason = "; ".join(
        f"{leg.leg} ranks it {leg.place.rank} and passes on {leg.depth}"
        if leg.place.rank
        else f"{leg.leg} does not rank it"
        for leg in legs
    )
    return Verdict(step="depth", reason=reason, remedies=remedies or ("words of the document in the question",))


def _describe_fault(leg: LegFacts) -> str:
    fault = f"failed: {leg.error}" if leg.error else "missed it: its index is approximate"
    return f"{leg.leg} ranks it {leg.place.rank} but {fault}" if leg.place.rank else f"{leg.leg} {fault}"


def _diagnose_steps(facts: Facts) -> Verdict | None:
    previous_rank = min((leg.place.rank for leg in facts.legs if leg.handed_on), default=0)
    for step in facts.steps:
        if step.place.rank == 0:
            return _drop_verdict(step, previous_rank)
        if step.place.rank > step.passes:
            return _weight_verdict(facts, step) or _demotion_verdict(step, previous_rank) or _depth_verdict(step)
        previous_rank = step.place.rank
    return None


def _drop_verdict(step: StepFacts, previous_rank: int) -> Verdict:
    if not step.most:
        reason = f"{_step_name(step.step)} dropped it from rank {previous_rank}"
        return Verdict(step=step.step, reason=reason, remedies=(_step_remedy(step.step),))
    reason = f"{step.in_document - 1} chunks of the document rank above it, and the limit is {step.most}"
    remedies = (f"max_chunks_per_document {step.in_document}", "--context 1, if it is adjacent to a hit")
    return Verdict(step="max_chunks_per_document", reason=reason, remedies=remedies)


def _weight_verdict(facts: Facts, step: StepFacts) -> Verdict | None:
    """The verdict if a leg ranks the document high enough, and a higher weight of that leg would have kept it."""
    legs = [leg for leg in facts.legs if leg.handed_on and leg.place.rank <= step.passes and leg.weight_needed]
    if step.step != "fusion" or not legs:
        return None
    low_weights = _join_with_and([f"{leg.leg} ranks it {leg.place.rank} but weighs {leg.weight:.2f}" for leg in legs])
    weights = tuple(f"a weight of {leg.weight_needed:.2f} for {leg.leg}" for leg in legs)
    reason = f"{low_weights}; the fusion ranks it {step.place.rank} and passes on {step.passes}"
    return Verdict(step="fusion", reason=reason, remedies=(*weights, _depth_remedy(step)))


def _demotion_verdict(step: StepFacts, previous_rank: int) -> Verdict | None:
    """The verdict if the document's rank was high enough before this step, and is not after it."""
    if step.step == "fusion" or previous_rank > step.passes:
        return None
    name = _step_name(step.step)
    reason = f"{name} moved it from {previous_rank} to {step.place.rank} and passes on {step.passes}"
    return Verdict(step=step.step, reason=reason, remedies=(_depth_remedy(step), _step_remedy(step.step)))


def _depth_verdict(step: StepFacts) -> Verdict:
    rank = f"{NAMES.get(step.step, step.step)} ranks it {step.place.rank}"
    if step.reader == "k":
        return Verdict(step="k", reason=f"{rank}, and k is {step.passes}", remedies=(_depth_remedy(step),))
    reason = f"{rank}, and {_step_name(step.reader)} reads {step.passes}"
    return Verdict(step=f"{step.reader}_depth", reason=reason, remedies=(_depth_remedy(step),))


def _depth_remedy(step: StepFacts) -> str:
    return f"-k {step.place.rank}" if step.reader == "k" else f"{step.reader}_depth {step.place.rank}"


def _step_name(step: str) -> str:
    return f"the {NAMES.get(step, f'step {step}')}"


def _step_remedy(step: str) -> str:
    return REMEDIES.get(step, f"other settings of {step}, or no {step}")


def _join_with_and(values: Sequence[object]) -> str:
    *others, last = map(str, values)
    return f"{', '.join(others)} and {last}" if others else last
