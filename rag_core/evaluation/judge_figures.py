"""The agreement of a judge with people, on claims that they labelled."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from uuid import UUID

import numpy as np

from rag_core.errors import InvalidRunError, RagError, describe_error
from rag_core.evaluation.answers import auroc_estimate, share_estimate
from rag_core.evaluation.claims import LabelledClaim
from rag_core.evaluation.measured_run import MIN_COVERAGE
from rag_core.evaluation.significance import RESAMPLES, Estimate
from rag_core.protocols import Judge
from rag_core.types import Answer, Chunk, Grade, Hit, Origin, Passage, Verdict

GRADES: tuple[Grade, ...] = ("supported", "partial", "unsupported", "unchecked")
NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedClaim:
    """The judge's verdict on a claim, or the error that it failed with."""

    claim: LabelledClaim
    verdict: Verdict
    seconds: float
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeFigures:
    """The figures of a judge on the claims that it judged, by name, and its grades by people's judgement.

    `supported` is the share that people call supported. `recall` and `false_alarms` are the shares of the supported
    and of the other claims with the grade `supported`; balanced accuracy and Cohen's kappa count that grade, too.
    """

    judged: Sequence[JudgedClaim]
    measures: Mapping[str, Estimate]
    grades: Mapping[str, Mapping[Grade, int]]

    @property
    def failed(self) -> list[JudgedClaim]:
        return [judged for judged in self.judged if judged.error]

    @property
    def coverage(self) -> float:
        return 1 - len(self.failed) / len(self.judged)

    @property
    def is_valid(self) -> bool:
        return self.coverage >= MIN_COVERAGE

    @property
    def milliseconds(self) -> float:
        """The mean time per claim."""
        return 1000 * sum(judged.seconds for judged in self.judged) / len(self.judged)


def judge_claims(judge: Judge, claims: Sequence[LabelledClaim], callers: int = 1) -> Iterator[JudgedClaim]:
    """Yields the verdicts in the order of the claims. `callers` claims are judged concurrently."""
    with asyncio.Runner() as runner:
        for first in range(0, len(claims), callers):
            yield from runner.run(_judge_all(judge, claims[first : first + callers]))


def measure_judge(judged: Sequence[JudgedClaim]) -> JudgeFigures:
    """Raises InvalidRunError if the judge failed on all claims with the same label."""
    verdicts = [(claim.claim.is_supported, claim.verdict) for claim in judged if not claim.error]
    supported, others = ([verdict for label, verdict in verdicts if label is side] for side in (True, False))
    if not supported or not others:
        raise InvalidRunError(f"the judge failed: {next(claim.error for claim in judged if claim.error)}")
    hits, alarms = (sum(verdict.grade == "supported" for verdict in side) for side in (supported, others))
    balanced_accuracy, kappa = estimate_agreement(hits, len(supported), alarms, len(others))
    return JudgeFigures(
        judged=judged,
        measures={
            "supported": share_estimate(len(supported), len(verdicts)),
            "auroc": auroc_estimate([verdict.score for verdict in supported], [verdict.score for verdict in others]),
            "balanced_accuracy": balanced_accuracy,
            "kappa": kappa,
            "recall": share_estimate(hits, len(supported)),
            "false_alarms": share_estimate(alarms, len(others)),
        },
        grades={"supported": _count_grades(supported), "unsupported": _count_grades(others)},
    )


def estimate_agreement(hits: int, supported: int, alarms: int, others: int, seed: int = 0) -> tuple[Estimate, Estimate]:
    """Balanced accuracy and Cohen's kappa. `hits` of the `supported` and `alarms` of the `others` count as supported.

    The intervals are percentiles of a bootstrap that resamples each side by itself, as in `auroc_estimate`.
    """
    generator = np.random.default_rng(seed)
    recall = np.append(hits, generator.binomial(supported, hits / supported, RESAMPLES)) / supported
    fallout = np.append(alarms, generator.binomial(others, alarms / others, RESAMPLES)) / others
    share = supported / (supported + others)
    observed = share * recall + (1 - share) * (1 - fallout)
    called = share * recall + (1 - share) * fallout
    by_chance = share * called + (1 - share) * (1 - called)
    accuracy, kappa = (recall + 1 - fallout) / 2, (observed - by_chance) / (1 - by_chance)
    low, high = np.percentile([accuracy[1:], kappa[1:]], [2.5, 97.5], axis=1)
    return (
        Estimate(float(accuracy[0]), float(low[0]), float(high[0])),
        Estimate(float(kappa[0]), float(low[1]), float(high[1])),
    )


def figures_to_json(figures: JudgeFigures) -> dict[str, Any]:
    return {
        "claims": len(figures.judged),
        "coverage": figures.coverage,
        "valid": figures.is_valid,
        "measures": {name: asdict(estimate) for name, estimate in figures.measures.items()},
        "grades": figures.grades,
        "milliseconds": figures.milliseconds,
        "failures": [{"claim": failed.claim.id, "reason": failed.error} for failed in figures.failed],
    }


def build_passage(text: str, language: str = "") -> Passage:
    """A passage that is the whole of its document."""
    chunk = Chunk(id=NOBODY, document_id=NOBODY, ordinal=0, text=text, start=0, end=len(text))
    hit = Hit(chunk=chunk, origin=Origin(uri="", title="", language=language), score=1.0)
    return Passage(n=1, hit=hit, text=text, start=0, chunks=(chunk,))


async def _judge_all(judge: Judge, claims: Sequence[LabelledClaim]) -> list[JudgedClaim]:
    return await asyncio.gather(*(_judge_claim(judge, claim) for claim in claims))


async def _judge_claim(judge: Judge, claim: LabelledClaim) -> JudgedClaim:
    started, verdict, error = time.perf_counter(), Verdict(), ""
    try:
        verdict = await judge.judge(Answer(text=claim.text), [build_passage(claim.context)])
    except RagError as failure:
        error = describe_error(failure)
    return JudgedClaim(claim=claim, verdict=verdict, seconds=time.perf_counter() - started, error=error)


def _count_grades(verdicts: Sequence[Verdict]) -> dict[Grade, int]:
    counts = Counter(verdict.grade for verdict in verdicts)
    return {grade: counts[grade] for grade in GRADES}
