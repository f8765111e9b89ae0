"""What every stage of retrieval added and lost, from the rankings that the stages' reports hold.

Rankings are of documents here, each document where its best chunk stands; where a question has answer spans, its
chunks are measured too. Legs are the stages with a ranking before
the fusion, or the first one where nothing is fused. A stage that recorded no ranking is not judged; the hits
themselves always are, as `final`. A stage within another is only timed, as `dense: embed`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from uuid import UUID

import numpy as np

from rag_core.evaluation.dataset import Question
from rag_core.evaluation.metrics import Id, distinct, measures, oracle, relevant
from rag_core.evaluation.significance import Estimate, estimates
from rag_core.evaluation.spans import UNMARKED, Answer, Span, span_measures
from rag_core.types import StageReport

FUSE, FETCH = "fuse", "fetch"
UNION = "union"
"""What all legs together found, in the best order that grades allow: the most that fusion and reranking can reach."""
FINAL = "final"
TOP = 10

STORE, FAILED, LEGS, BELOW = "store", "failed", "legs", f"below {TOP}"
"""Where a document is lost that is not stored, whose question failed, that no leg ranks, that is a hit but a late
one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """What became of one question: its hits' chunks, best first, or why there are none."""

    question: str
    ranking: tuple[UUID, ...] = ()
    stages: tuple[StageReport, ...] = ()
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One question. `legs` and `behind` them are rankings by stage, the last one `final`; `measures` are of these and
    of the union. `lost` says of every relevant document where it was lost, empty for one among the first TOP hits.
    `chunks` and their `chunk_measures` are by stage, too; empty where the question has no answer spans."""

    question: Question
    trace: Trace
    legs: Mapping[str, Sequence[str]]
    behind: Mapping[str, Sequence[str]]
    measures: Mapping[str, Mapping[str, float]]
    lost: Mapping[str, str]
    answer: Answer = UNMARKED
    chunks: Mapping[str, Sequence[UUID]] = field(default_factory=dict)
    chunk_measures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def rankings(self) -> dict[str, Sequence[str]]:
        """In the order of the flow."""
        return _with_union(self.legs, self.behind, self.question.grades)


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """In seconds, over questions."""

    p50: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSummary:
    """`measures` are empty for a stage without a ranking, `latency` is None for one that is no timed stage.

    `chunk_measures` are of the questions with answer spans.
    """

    stage: str
    measures: Mapping[str, Estimate]
    latency: Latency | None
    errors: int = 0
    chunk_measures: Mapping[str, Estimate] = field(default_factory=dict)


def judged(question: Question, trace: Trace, documents: Mapping[UUID, str], stored: frozenset[str]) -> Judged:
    """`documents` by chunk, `stored` are those that can be found at all; both by their ids in the dataset."""
    legs, behind = _flow(trace)
    places = Judged(
        question=question,
        trace=trace,
        legs={stage: _documents(ranking, documents) for stage, ranking in sorted(legs.items())},
        behind={stage: _documents(ranking, documents) for stage, ranking in behind.items()},
        measures={},
        lost={},
    )
    return replace(
        places,
        measures={stage: measures(ranking, question.grades) for stage, ranking in places.rankings.items()},
        lost={id: _lost(id, places, stored) for id in relevant(question.grades)},
    )


def judged_by_chunk(found: Judged, answer: Answer, chunks: Mapping[UUID, Span]) -> Judged:
    """With the measures of its chunks, of which `chunks` says where they stand."""
    legs, behind = (
        {stage: distinct(id for id in ranking if id in chunks) for stage, ranking in rankings.items()}
        for rankings in _flow(found.trace)
    )
    held = {id: int(characters.sum()) for id, characters in answer.held.items()}
    rankings = _with_union(dict(sorted(legs.items())), behind, held)
    measured = {stage: span_measures(ranking, answer, chunks) for stage, ranking in rankings.items()}
    return replace(found, answer=answer, chunks=rankings, chunk_measures=measured)


def summaries(questions: Sequence[Judged]) -> list[StageSummary]:
    """One a stage, in the order of the flow; at least one question. Who has no ranking of a stage counts as 0 there.

    Where there is but one leg, the union is left out.
    """
    ranked = set(chain.from_iterable(question.measures for question in questions))
    by_chunk = [each.chunk_measures for each in questions if each.chunk_measures]
    errors = Counter(_label(each) for question in questions for each in question.trace.stages if each.error)
    return [
        StageSummary(
            stage=stage,
            measures=_estimated([each.measures for each in questions], stage) if stage in ranked else {},
            latency=_latency(questions, stage),
            errors=errors[stage],
            chunk_measures=_estimated(by_chunk, stage) if by_chunk and stage in ranked else {},
        )
        for stage in _in_order(questions)
    ]


def losses(questions: Sequence[Judged]) -> dict[str, int]:
    """How many relevant documents were lost where, in the order of the flow; those found under the empty name."""
    counts = Counter(place for question in questions for place in question.lost.values())
    behind = distinct(stage for question in questions for stage in question.behind if stage != FINAL)
    return {place: counts[place] for place in ("", STORE, FAILED, LEGS, *behind, FINAL, BELOW)}


def run(questions: Sequence[Judged], stage: str) -> dict[str, dict[str, float]]:
    """A TREC run; scores are 1 / rank, since a stage's order, not its score, is what it passed on."""
    return {
        each.question.id: {id: 1 / rank for rank, id in enumerate(rankings[stage], start=1)}
        for each in questions
        if stage in (rankings := each.rankings)
    }


def _lost(document: str, found: Judged, stored: frozenset[str]) -> str:
    """The first stage that lacks the document; empty where it is among the first TOP hits."""
    if document not in stored:
        return STORE
    if found.trace.error:
        return FAILED
    unrecorded = not found.legs and any(found.behind.values())
    if not unrecorded and not any(document in ranking for ranking in found.legs.values()):
        return LEGS
    lacking = next((stage for stage, ranking in found.behind.items() if document not in ranking), "")
    return lacking or ("" if document in found.behind[FINAL][:TOP] else BELOW)


def _with_union(
    legs: Mapping[str, Sequence[Id]], behind: Mapping[str, Sequence[Id]], grades: Mapping[Id, int]
) -> dict[str, Sequence[Id]]:
    union = {UNION: oracle(chain.from_iterable(legs.values()), grades)} if legs else {}
    return {**legs, **union, **behind}


def _flow(trace: Trace) -> tuple[dict[str, list[UUID]], dict[str, list[UUID]]]:
    """Chunks by leg, and by the stages behind them, the last one the hits. Of a stage that ran more than once all that
    it ranked; a stage behind the legs that failed passed on what it was given."""
    reports = [report for report in trace.stages if not report.parent and report.stage != FETCH]
    legs: dict[str, list[UUID]] = {}
    behind: dict[str, list[UUID]] = {}
    fused = any(report.stage == FUSE for report in reports)
    for report in reports:
        known = behind if report.stage == FUSE or behind or (legs and not fused) else legs
        given = next(reversed(behind.values()), []) if report.error and known is behind else report.ranking
        if given:
            (legs if report.stage in legs else known).setdefault(report.stage, []).extend(given)
    return legs, {**behind, FINAL: list(trace.ranking)}


def _documents(chunks: Iterable[UUID], documents: Mapping[UUID, str]) -> list[str]:
    return distinct(documents[id] for id in chunks if id in documents)


def _in_order(questions: Sequence[Judged]) -> list[str]:
    """Legs by name, each behind what is part of it; then as they come, the question with the most stages first."""
    by_size = sorted(questions, key=lambda question: -len(question.trace.stages))
    legs = sorted(set(chain.from_iterable(question.legs for question in questions)))
    timed = distinct(_label(report) for question in by_size for report in question.trace.stages)
    of_legs = [label for leg in legs for label in timed if label == leg or label.startswith(f"{leg}: ")]
    union = [UNION] if len(legs) > 1 else []
    return distinct([*of_legs, *union, *(label for label in timed if label not in of_legs), FINAL])


def _label(report: StageReport) -> str:
    return f"{report.parent}: {report.stage}" if report.parent else report.stage


def _estimated(measured: Sequence[Mapping[str, Mapping[str, float]]], stage: str) -> dict[str, Estimate]:
    names = list(measured[0][FINAL])
    rows = [[by_stage.get(stage, {}).get(name, 0.0) for name in names] for by_stage in measured]
    return dict(zip(names, estimates(np.array(rows)), strict=True))


def _latency(questions: Sequence[Judged], stage: str) -> Latency | None:
    """Of `final` the whole request's."""
    seconds = [taken for question in questions if (taken := _seconds(question.trace, stage)) is not None]
    if not seconds:
        return None
    p50, p95 = np.percentile(seconds, [50, 95])
    return Latency(p50=float(p50), p95=float(p95))


def _seconds(trace: Trace, stage: str) -> float | None:
    """None if the stage did not run."""
    if stage == FINAL:
        return trace.seconds
    taken = [report.seconds for report in trace.stages if _label(report) == stage]
    return sum(taken) if taken else None
