"""The calibration of the confidence: it fits the numbers of rag_core/answering/generation/confidence.py again.

Each set has its own questions, and questions of another collection, whose answers are wrong. An answer is right if one
of its sentences is gold. The sets weigh the same. Questions of ClapNQ that no passage answers count as foreign.

The table leaves each set out once, fits on the others, and compares on its own questions the calibrated confidence with
two others: the earlier confidence, which was 1 for each answer, and a constant, the mean accuracy of the other sets.
ECE is the expected calibration error over ten bins of equal size (Naeini et al., AAAI 2015).

    python -m benchmarks.calibration DATA                          asks, and writes the signals to signals.json
    python -m benchmarks.calibration DATA --signals signals.json   reads them if the file exists, and only fits
    python -m benchmarks.calibration DATA --questions 100
"""

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.answers import (
    CLAPNQ,
    COVIDQA,
    LOOKALIKES,
    XQUAD,
    AnsweredQuestion,
    Bench,
    Question,
    align_questions,
    build_bench,
    build_sampler,
    lookalike_question,
    read_clapnq_questions,
    read_covidqa_questions,
    read_xquad_questions,
)
from benchmarks.lookalikes import generate_lookalikes
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.answering.generation.confidence import Calibration, read_passage_signals
from rag_core.config import Settings
from rag_core.evaluation.answers import calibration_error
from rag_core.evaluation.dataset import read_corpus
from rag_core.settings import load_settings
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres

Values: TypeAlias = NDArray[np.float64]
Example: TypeAlias = tuple[float, float, bool]
"""A nearness, a lead, and the outcome."""

FOREIGN_WEIGHTS = {"SENTENCES": 0.25, "WORDS": 0.5, "PASSAGES": 0.25}
"""The weight of a foreign question. It decides how many of them are answered: at most 5 %, with sentences. Words alone
tell them apart less well."""

REGULARIZATION = 1e-4
STEPS = 30
"""The iterations of Newton's method; it needs about ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The signals of one question. `in_passages`: a passage has the answer."""

    set: str
    foreign: bool
    cosine: float
    share: float
    lead: float
    passage_cosine: float
    passage_lead: float
    right: bool
    in_passages: bool


SIGNALS: dict[str, Callable[[Row], Example]] = {
    "SENTENCES": lambda row: (row.cosine, row.lead, row.right),
    "WORDS": lambda row: (row.share, row.lead, row.right),
    "PASSAGES": lambda row: (row.passage_cosine, row.passage_lead, row.in_passages),
}
"""The signals and the outcome of each calibration."""


def main() -> None:
    arguments = _arguments()
    if not arguments.signals.exists():
        rows = _ask_all(arguments.data, arguments.questions)
        arguments.signals.write_text(json.dumps(list(map(asdict, rows))))
    rows = [Row(**row) for row in json.loads(arguments.signals.read_text())]
    print(heading())
    _show_sets_left_out(rows)
    for name in SIGNALS:
        print(f"{name} = {_fit(rows, name)}")


def _ask_all(data: Path, count: int | None) -> list[Row]:
    settings = load_settings(None, "default", ["generation.threshold=0"], environment={})
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        return asyncio.run(_ask_sets(Postgres.open(dsn), scratch, data, count, settings))


async def _ask_sets(postgres: Postgres, folder: Path, data: Path, count: int | None, settings: Settings) -> list[Row]:
    corpus = CorpusReader(postgres)
    sample = build_sampler(count)
    try:
        bench = build_bench(settings, postgres, folder, corpus)
        rows = []
        for name, foreign, questions in _load_sets(bench, data):
            rows += await _ask_set(bench, name, sample(questions), foreign)
        return rows
    finally:
        await corpus.close()


def _load_sets(bench: Bench, data: Path) -> Iterator[tuple[str, bool, list[Question]]]:
    """Ingests the collections, and yields for each its questions and the foreign ones, with a flag."""
    articles = list(read_corpus(data / COVIDQA / "documents.jsonl"))
    lookalikes = generate_lookalikes()
    bench.ingest(XQUAD, list(read_corpus(data / XQUAD / "corpus.jsonl")))
    bench.ingest(COVIDQA, articles)
    bench.ingest(CLAPNQ, list(read_corpus(data / CLAPNQ / "items.jsonl")))
    bench.ingest(LOOKALIKES, [lookalike.document for lookalike in lookalikes])
    covidqa = align_questions(bench, articles, read_covidqa_questions(data / COVIDQA))
    yield XQUAD, False, read_xquad_questions(data / XQUAD)
    yield XQUAD, True, covidqa
    yield COVIDQA, False, covidqa
    yield CLAPNQ, False, read_clapnq_questions(data / CLAPNQ)
    yield CLAPNQ, True, read_clapnq_questions(data / CLAPNQ, answerable=False)
    yield LOOKALIKES, False, [lookalike_question(lookalike) for lookalike in lookalikes]


async def _ask_set(bench: Bench, name: str, questions: Sequence[Question], foreign: bool) -> list[Row]:
    return [_read_row(bench, name, answer, foreign) for answer in await bench.ask_all(name, questions)]


def _read_row(bench: Bench, name: str, answered: AnsweredQuestion, foreign: bool) -> Row:
    signals, candidates = answered.ranked.signals, answered.ranked.candidates
    passage_cosine, passage_lead = read_passage_signals(answered.hits) or (0.0, 0.0)
    return Row(
        set=name,
        foreign=foreign,
        cosine=signals.cosine or 0.0,
        share=signals.share,
        lead=signals.lead,
        passage_cosine=passage_cosine,
        passage_lead=passage_lead,
        right=not foreign and bench.is_right(name, answered),
        in_passages=not foreign and any(bench.is_gold(name, answered.question, each) for each in candidates),
    )


def _fit(rows: Sequence[Row], name: str) -> Calibration:
    """Fits a calibration. The own questions of each set have the same weight."""
    sizes = Counter((row.set, row.foreign) for row in rows)
    weights = [(FOREIGN_WEIGHTS[name] if row.foreign else 1.0) / sizes[row.set, row.foreign] for row in rows]
    examples = np.array([SIGNALS[name](row) for row in rows], np.float64)
    return fit_calibration(examples[:, :2], examples[:, 2], np.array(weights))


def fit_calibration(signals: Values, right: Values, weights: Values) -> Calibration:
    """Logistic regression by Newton's method, with a little regularization that keeps separable data finite."""
    rows = np.column_stack([np.ones(len(signals)), signals])
    weights = weights / weights.sum()
    penalty = np.diag([0.0, REGULARIZATION, REGULARIZATION])
    coefficients = np.zeros(3)
    for _ in range(STEPS):
        probability = 1 / (1 + np.exp(-rows @ coefficients))
        gradient = rows.T @ (weights * (right - probability)) - penalty @ coefficients
        curvature = rows.T @ (rows * (weights * probability * (1 - probability))[:, None]) + penalty
        coefficients = coefficients + np.linalg.solve(curvature, gradient)
    return Calibration(*np.round(coefficients, 2).tolist())


def _show_sets_left_out(rows: Sequence[Row]) -> None:
    """Prints a line for each set: its accuracy, the three ECEs, the accuracy of the surest, and the answered shares."""
    print("left out            questions  right    ECE   of 1  const  surest 50 %   80 %  answered: own  foreign")
    names = list(dict.fromkeys(row.set for row in rows))
    for name in names:
        others = [row for row in rows if row.set != name]
        calibration = _fit(others, "SENTENCES")
        confidences, right = _confidences(rows, name, calibration, foreign=False)
        foreign, _ = _confidences(rows, name, calibration, foreign=True)
        surest = right[np.argsort(-confidences, kind="stable")]
        constant = fmean(
            _confidences(others, other, calibration, foreign=False)[1].mean() for other in names if other != name
        )
        errors = [
            calibration_error(values, right)
            for values in (confidences, np.ones(len(right)), np.full(len(right), constant))
        ]
        print(
            f"{name:18} {len(right):10} {right.mean():6.3f} {errors[0]:6.3f} {errors[1]:6.3f} {errors[2]:6.3f}"
            f" {surest[: len(right) // 2].mean():12.3f} {surest[: len(right) * 4 // 5].mean():6.3f}"
            f" {(confidences >= 0.5).mean():14.3f} {(foreign >= 0.5).mean() if len(foreign) else np.nan:8.3f}"
        )


def _confidences(rows: Sequence[Row], name: str, calibration: Calibration, foreign: bool) -> tuple[Values, Values]:
    """The confidences of a set's questions, and 1 for each right answer, else 0."""
    asked = [row for row in rows if row.set == name and row.foreign is foreign]
    confidences = [calibration.probability(row.cosine, row.lead) for row in asked]
    return np.array(confidences), np.array([float(row.right) for row in asked])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"the folder that contains {XQUAD}, {COVIDQA} and {CLAPNQ}")
    parser.add_argument("--questions", type=int, help="size of a sample of each set; default: all")
    parser.add_argument("--signals", type=Path, default=Path("signals.json"), help="file of the questions' signals")
    return parser.parse_args()


if __name__ == "__main__":
    main()
