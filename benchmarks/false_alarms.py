"""How often do the gate and the sequential test raise an alarm if nothing has changed?

The gate's runs are made from real values: nDCG@10 of two stages of a run of `rag evaluate --out`. Questions are drawn
with replacement, and the two values of each question are swapped at random. Base and run then differ as two pipelines
do, but none is better. The sequential test compares two rates of .5, and is looked at 50 times.

The limit is 5 % plus the sampling error of the simulations (99 %). Without it, a rule has no error of its own.

    python -m benchmarks.false_alarms RUN ...
    python -m benchmarks.false_alarms RUN ... --stages bm25 dense --simulations 500
"""

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log, sqrt
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.machine import heading
from jobs.evaluation_runs import QUESTIONS, find_runs
from rag_core.evaluation.gate import Gate, check_run
from rag_core.evaluation.measured_run import MeasuredRun, RunPair
from rag_core.evaluation.sequential import log_likelihood_ratio
from rag_core.evaluation.significance import FLIPS, RESAMPLES

MEASURE = "ndcg@10"
ALPHA = 0.05
NIGHTS, LOOKS, PER_LOOK, EFFECT = 20, 50, 400, 0.04
QUICK_FLIPS, QUICK_RESAMPLES = 999, 200
"""Fewer than in the product, so that thousands of simulations take minutes."""

Values = NDArray[np.float64]


def main() -> None:
    arguments = _arguments()
    print(heading())
    limit = ALPHA + 2.576 * sqrt(ALPHA * (1 - ALPHA) / arguments.simulations)
    runs = [run for folder in arguments.runs for run in find_runs(folder)]
    values = {run.name: _stage_values(run, arguments.stages) for run in runs}
    counts = ", ".join(f"{name} {len(pairs)}" for name, pairs in values.items())
    print(f"{arguments.simulations} simulations; {' and '.join(arguments.stages)}; questions: {counts}")
    generator = np.random.default_rng(arguments.seed)
    outcomes: Counter[str] = Counter()
    for _ in range(arguments.simulations):
        outcomes.update(_check_unchanged(values, generator, QUICK_FLIPS, QUICK_RESAMPLES))
    shares = {name: count / arguments.simulations for name, count in outcomes.items()}
    print(
        f"gate: {shares.get('fail', 0):.1%} fail (limit {limit:.1%}), {shares.get('inconclusive', 0):.1%} inconclusive"
    )
    print(f"a gate that fails whenever the mean falls by more than .01: {shares.get('fell', 0):.1%}")
    failed = sum("fail" in _check_unchanged(values, generator, FLIPS, RESAMPLES) for _ in range(NIGHTS))
    print(f"{NIGHTS} nights without a change, as the product tests them: {failed} fail (limit 3)")
    _print_looks(generator, arguments.simulations, limit)


def _stage_values(folder: Path, stages: Sequence[str]) -> Values:
    """Shape (questions, 2)."""
    rows = pq.read_table(folder / QUESTIONS, columns=["stages"]).column("stages").to_pylist()
    measures = [{stage["stage"]: dict(stage["measures"])[MEASURE] for stage in row} for row in rows]
    return np.array([[by_stage.get(stage, 0.0) for stage in stages] for by_stage in measures])


def _check_unchanged(
    values: Mapping[str, Values], generator: np.random.Generator, flips: int, resamples: int
) -> list[str]:
    """The gate's outcome for a run that is not better or worse, and `fell` if its mean is lower by more than .01."""
    pairs, differences = [], []
    for name, measured in values.items():
        drawn = measured[generator.integers(len(measured), size=len(measured))]
        swapped = np.where(generator.integers(2, size=len(drawn))[:, None] == 0, drawn, drawn[:, ::-1])
        differences.append(swapped[:, 1] - swapped[:, 0])
        pairs.append(RunPair(_run(name, swapped[:, 0]), _run(name, swapped[:, 1])))
    result = check_run(Gate(), [pair.candidate for pair in pairs], pairs, flips, resamples)
    return [result.outcome, *(["fell"] if np.concatenate(differences).mean() < -0.01 else [])]


def _run(dataset: str, values: Values) -> MeasuredRun:
    return MeasuredRun(
        dataset=dataset,
        split="test",
        profile="default",
        k=100,
        grades={},
        values={MEASURE: {str(i): float(value) for i, value in enumerate(values)}},
    )


def _print_looks(generator: np.random.Generator, simulations: int, limit: float) -> None:
    sizes = PER_LOOK * np.arange(1, LOOKS + 1)
    one, other = (np.cumsum(generator.binomial(PER_LOOK, 0.5, (simulations, LOOKS)), axis=1) / sizes for _ in range(2))
    variances = (one * (1 - one) + other * (1 - other)) / sizes
    sequential = log_likelihood_ratio(one - other, variances, EFFECT) > log(1 / ALPHA)
    plain = np.abs(one - other) / np.sqrt(variances) > 1.96
    print(f"sequential test, {LOOKS} looks: {sequential.any(axis=1).mean():.1%} alarms (limit {limit:.1%})")
    print(
        f"plain z-test, {LOOKS} looks: {plain.any(axis=1).mean():.1%}; at the last look only {plain[:, -1].mean():.1%}"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of rag evaluate --out")
    parser.add_argument("--stages", nargs=2, default=["bm25", "final"], help="the stages whose values are swapped")
    parser.add_argument("--simulations", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
