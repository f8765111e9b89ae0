"""The gains and losses of every stage of retrieval, by the rankings in the stages' reports.

A ranking here is of documents, each at the position of its best chunk; for a question with answer spans, its chunks
are measured too. The legs are the stages with a ranking before the fusion, or the first such stage without a fusion.
The searches of variants, such as `variant previous`, are legs of the stage `variants`, which fuses them.
A stage without a ranking is not judged; the hits themselves always are, as `final`. A nested stage is only timed, as
`dense: embed`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean
from uuid import UUID

import numpy as np

from rag_core.evaluation.metrics import Id, ideal_ranking, measures, relevant_ids, unique_ids
from rag_core.evaluation.question import Question
from rag_core.evaluation.significance import Estimate, estimates
from rag_core.evaluation.spans import NO_SPANS, AnswerCharacters, Span, span_measures
from rag_core.retrieval.variants import VARIANT_STAGE
from rag_core.types import StageReport

FUSE, FETCH, VARIANTS = "fuse", "fetch", "variants"
UNION = "union"
"""The chunks of all legs together, in the best order that the grades allow: the limit for fusion and reranking."""
FINAL = "final"
TOP_RANKS = 10
COMPARED_MEASURE = f"ndcg@{TOP_RANKS}"
"""The measure of comparisons, and of the headroom."""

STORE, FAILED, LEGS, BELOW_TOP = "store", "failed", "legs", f"below {TOP_RANKS}"
"""The places besides the stages where a document is lost: it is not stored, its question failed, no leg ranks it, or
its rank in the hits is too low."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The outcome of one question: the chunks of its hits, best first, or the error that it failed with."""

    question: str
    ranking: tuple[UUID, ...] = ()
    stages: tuple[StageReport, ...] = ()
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedQuestion:
    """A question with the measures of each stage.

    `legs` and `later_stages` hold rankings by stage; the last later stage is `final`. `measures` are of all these and
    of the union. `lost_at` maps every relevant document to the place where it was lost, or to an empty text if it is
    among the first TOP_RANKS hits. `chunks` and `chunk_measures` are by stage, too; empty without answer spans.
    """

    question: Question
    trace: Trace
    legs: Mapping[str, Sequence[str]]
    later_stages: Mapping[str, Sequence[str]]
    measures: Mapping[str, Mapping[str, float]]
    lost_at: Mapping[str, str]
    answer: AnswerCharacters = NO_SPANS
    chunks: Mapping[str, Sequence[UUID]] = field(default_factory=dict)
    chunk_measures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def question_legs(self) -> list[str]:
        """The legs of the question itself, without its variants."""
        return [leg for leg in self.legs if not _is_variant(leg)]

    @property
    def rankings(self) -> dict[str, Sequence[str]]:
        """The rankings by stage, in the order of the flow."""
        return _join_rankings(self.legs, self.later_stages, self.question.grades)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """The mean and the percentiles over questions, in seconds."""

    mean: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """The figures of one stage over all questions.

    `measures` are empty for a stage without a ranking, and `latency` is None for one that is not timed.
    `chunk_measures` are of the questions with answer spans.
    """

    stage: str
    measures: Mapping[str, Estimate]
    latency: Latency | None
    errors: int = 0
    chunk_measures: Mapping[str, Estimate] = field(default_factory=dict)


def judge_question(
    question: Question, trace: Trace, documents: Mapping[UUID, str], stored: frozenset[str]
) -> JudgedQuestion:
    """Judges the rankings of documents.

    `documents` maps chunks to their documents, and `stored` holds the documents that can be found at all; both by their
    ids in the dataset.
    """
    legs, later_stages = _split_flow(trace)
    judged = JudgedQuestion(
        question=question,
        trace=trace,
        legs={stage: _rank_documents(ranking, documents) for stage, ranking in sorted(legs.items())},
        later_stages={stage: _rank_documents(ranking, documents) for stage, ranking in later_stages.items()},
        measures={},
        lost_at={},
    )
    return replace(
        judged,
        measures={stage: measures(ranking, question.grades) for stage, ranking in judged.rankings.items()},
        lost_at={id: _find_loss(id, judged, stored) for id in relevant_ids(question.grades)},
    )


def with_chunk_measures(
    judged: JudgedQuestion, answer: AnswerCharacters, chunks: Mapping[UUID, Span]
) -> JudgedQuestion:
    """A copy with the measures of its chunks; `chunks` holds their spans in the documents."""
    legs, later_stages = (
        {stage: unique_ids(id for id in ranking if id in chunks) for stage, ranking in rankings.items()}
        for rankings in _split_flow(judged.trace)
    )
    grades = {id: int(characters.sum()) for id, characters in answer.by_chunk.items()}
    rankings = _join_rankings(dict(sorted(legs.items())), later_stages, grades)
    chunk_measures = {stage: span_measures(ranking, answer, chunks) for stage, ranking in rankings.items()}
    return replace(judged, answer=answer, chunks=rankings, chunk_measures=chunk_measures)


def fill_variants(questions: Sequence[JudgedQuestion]) -> list[JudgedQuestion]:
    """Copies in which the stage `variants` passes on what the question found, if it has no variants but others have."""
    if not any(VARIANTS in question.later_stages for question in questions):
        return list(questions)
    return [question if VARIANTS in question.later_stages else _fill_variants(question) for question in questions]


def summarize_stages(questions: Sequence[JudgedQuestion]) -> list[StageSummary]:
    """One summary per stage, in the order of the flow, over at least one question.

    A question without a ranking of a stage counts as 0, but a variant is measured over the questions that have it. The
    union is left out if there is only one leg.
    """
    ranked = set(chain.from_iterable(question.measures for question in questions))
    by_document = [question.measures for question in questions]
    by_chunk = [question.chunk_measures for question in questions if question.chunk_measures]
    errors = Counter(_label(report) for question in questions for report in question.trace.stages if report.error)
    chunk_ranked = set(chain.from_iterable(by_chunk))
    return [
        StageSummary(
            stage=stage,
            measures=_estimate_measures(by_document, stage) if stage in ranked else {},
            latency=_stage_latency(questions, stage),
            errors=errors[stage],
            chunk_measures=_estimate_measures(by_chunk, stage) if stage in chunk_ranked else {},
        )
        for stage in _order_stages(questions)
    ]


def count_losses(questions: Sequence[JudgedQuestion]) -> dict[str, int]:
    """The number of relevant documents lost at each place, in the order of the flow.

    Those among the first TOP_RANKS hits have the empty name.
    """
    counts = Counter(place for question in questions for place in question.lost_at.values())
    later_stages = unique_ids(stage for question in questions for stage in question.later_stages if stage != FINAL)
    return {place: counts[place] for place in ("", STORE, FAILED, LEGS, *later_stages, FINAL, BELOW_TOP)}


def trec_run(questions: Sequence[JudgedQuestion], stage: str) -> dict[str, dict[str, float]]:
    """The rankings of a stage as a TREC run. Scores are 1 / rank: a stage passes on its order, not its scores."""
    return {
        question.question.id: {id: 1 / rank for rank, id in enumerate(rankings[stage], start=1)}
        for question in questions
        if stage in (rankings := question.rankings)
    }


def _fill_variants(judged: JudgedQuestion) -> JudgedQuestion:
    legs = judged.question_legs
    source = FUSE if FUSE in judged.later_stages else (legs[0] if len(legs) == 1 else FINAL)
    first = {stage: ranking for stage, ranking in judged.later_stages.items() if stage == FUSE}
    return replace(
        judged,
        later_stages={**first, VARIANTS: judged.rankings[source], **judged.later_stages},
        measures={**judged.measures, VARIANTS: judged.measures[source]},
        chunks={**judged.chunks, VARIANTS: judged.chunks[source]} if judged.chunks else {},
        chunk_measures={**judged.chunk_measures, VARIANTS: judged.chunk_measures[source]}
        if judged.chunk_measures
        else {},
    )


def _find_loss(document: str, judged: JudgedQuestion, stored: frozenset[str]) -> str:
    """The first place that lacks the document; empty if it is among the first TOP_RANKS hits."""
    if document not in stored:
        return STORE
    if judged.trace.error:
        return FAILED
    legs_unknown = not judged.legs and any(judged.later_stages.values())
    if not legs_unknown and not any(document in ranking for ranking in judged.legs.values()):
        return LEGS
    for stage, ranking in _stages_of(document, judged):
        if document not in ranking:
            return stage
    return "" if document in judged.later_stages[FINAL][:TOP_RANKS] else BELOW_TOP


def _stages_of(document: str, judged: JudgedQuestion) -> list[tuple[str, Sequence[str]]]:
    """The later stages that can lose the document; after a variant has found it, the first is the variants' fusion."""
    stages = list(judged.later_stages.items())
    names = [stage for stage, _ in stages]
    is_fused = any(document in judged.legs[leg] for leg in judged.legs if _is_variant(leg))
    return stages[names.index(VARIANTS) :] if is_fused and VARIANTS in names else stages


def _is_variant(stage: str) -> bool:
    return stage.startswith(f"{VARIANT_STAGE} ")


def _join_rankings(
    legs: Mapping[str, Sequence[Id]], later_stages: Mapping[str, Sequence[Id]], grades: Mapping[Id, int]
) -> dict[str, Sequence[Id]]:
    """The rankings of the legs, their union, and the later stages."""
    union = {UNION: ideal_ranking(chain.from_iterable(legs.values()), grades)} if legs else {}
    return {**legs, **union, **later_stages}


def _split_flow(trace: Trace) -> tuple[dict[str, list[UUID]], dict[str, list[UUID]]]:
    """The chunks by leg, and by later stage; the last one is the hits.

    A stage that ran more than once has all that it ranked. A later stage that failed passed on the ranking before it.
    """
    reports = [report for report in trace.stages if not report.parent and report.stage != FETCH]
    variants = {
        report.stage: list(report.ranking) for report in reports if _is_variant(report.stage) and report.ranking
    }
    legs: dict[str, list[UUID]] = {}
    later_stages: dict[str, list[UUID]] = {}
    has_fusion = any(report.stage == FUSE for report in reports)
    for report in reports:
        if _is_variant(report.stage):  # it runs beside the question's own stages, and ends before or after them
            continue
        is_later = report.stage in (FUSE, VARIANTS) or bool(later_stages) or (bool(legs) and not has_fusion)
        ranking: Sequence[UUID] = report.ranking
        if report.error and is_later:
            ranking = next(reversed(later_stages.values()), [])
        if ranking:
            rankings = later_stages if is_later and report.stage not in legs else legs
            rankings.setdefault(report.stage, []).extend(ranking)
    return {**legs, **variants}, {**later_stages, FINAL: list(trace.ranking)}


def _rank_documents(chunks: Iterable[UUID], documents: Mapping[UUID, str]) -> list[str]:
    return unique_ids(documents[id] for id in chunks if id in documents)


def _order_stages(questions: Sequence[JudgedQuestion]) -> list[str]:
    """The legs by name, each after its nested stages; then the others as they ran, in the longest question first."""
    by_size = sorted(questions, key=lambda question: -len(question.trace.stages))
    legs = sorted(set(chain.from_iterable(question.legs for question in questions)))
    timed = unique_ids(_label(report) for question in by_size for report in question.trace.stages)
    leg_labels = [label for leg in legs for label in timed if label == leg or label.startswith(f"{leg}: ")]
    union = [UNION] if len(legs) > 1 else []
    return unique_ids([*leg_labels, *union, *(label for label in timed if label not in leg_labels), FINAL])


def _label(report: StageReport) -> str:
    return f"{report.parent}: {report.stage}" if report.parent else report.stage


def _estimate_measures(questions: Sequence[Mapping[str, Mapping[str, float]]], stage: str) -> dict[str, Estimate]:
    """The estimates of a stage's measures; `questions` holds measures by stage."""
    names = list(questions[0][FINAL])
    measured = [by_stage for by_stage in questions if stage in by_stage] if _is_variant(stage) else questions
    rows = [[by_stage.get(stage, {}).get(name, 0.0) for name in names] for by_stage in measured]
    return dict(zip(names, estimates(np.array(rows)), strict=True))


def _stage_latency(questions: Sequence[JudgedQuestion], stage: str) -> Latency | None:
    """The latency of a stage in the questions where it ran; of `final`, that of the whole request."""
    seconds = []
    for trace in (question.trace for question in questions):
        times = [report.seconds for report in trace.stages if _label(report) == stage]
        if stage == FINAL:
            seconds.append(trace.seconds)
        elif times:
            seconds.append(sum(times))
    if not seconds:
        return None
    p50, p95, p99 = map(float, np.percentile(seconds, [50, 95, 99]))
    return Latency(mean=fmean(seconds), p50=p50, p95=p95, p99=p99)
