"""Does the gate notice losses that are planted into a real run?

Each loss changes the hits of a run of `rag evaluate --out`; nothing is searched again. The gate then compares the
changed run with the original, over all datasets together. The expected outcome of a loss was written down before the
first run; `-` means: it depends on the number of questions, see the difference that they can show.

    python -m benchmarks.planted_losses RUN ...
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import pyarrow.parquet as pq

from benchmarks.machine import heading
from jobs.evaluation_runs import QUESTIONS, find_runs, read_run
from rag_core.evaluation.comparison import compare_runs
from rag_core.evaluation.gate import Gate, check_run
from rag_core.evaluation.measured_run import MeasuredRun, RunPair
from rag_core.evaluation.metrics import measures

MEASURE = "ndcg@10"
Rankings: TypeAlias = Mapping[str, Sequence[str]]
"""The documents of one question, best first, by stage."""


@dataclass(frozen=True)
class Loss:
    """`plant` returns the hits of question number n."""

    name: str
    expected: str
    plant: Callable[[int, Rankings], Sequence[str]]


LOSSES = [
    Loss("nothing changed", "pass", lambda _, ranked: ranked["final"]),
    Loss("hits reversed", "fail", lambda _, ranked: ranked["final"][::-1]),
    Loss("only the dense leg", "fail", lambda _, ranked: ranked.get("dense", ())),
    Loss("only the bm25 leg", "fail", lambda _, ranked: ranked.get("bm25", ())),
    Loss("no hits for every tenth question", "fail", lambda n, ranked: ranked["final"] if n % 10 else ()),
    Loss("first hit lost in every tenth question", "fail", lambda n, ranked: ranked["final"][n % 10 == 0 :]),
    Loss("first hit lost in every 50th question", "-", lambda n, ranked: ranked["final"][n % 50 == 0 :]),
    Loss("hits cut to five", "-", lambda _, ranked: ranked["final"][:5]),
    Loss("hits cut to ten", "pass", lambda _, ranked: ranked["final"][:10]),
    Loss("second and third hit swapped", "-", lambda _, ranked: swap_second_and_third(ranked["final"])),
]


def main() -> None:
    arguments = _arguments()
    print(heading())
    folders = [run for folder in arguments.runs for run in find_runs(folder)]
    bases = [(read_run(folder), _read_rankings(folder)) for folder in folders]
    print(f"datasets: {', '.join(f'{base.name} {len(base.grades)}' for base, _ in bases)}")
    print(f"{'loss':40} {'expected':9} {'gate':13} {'difference':29} {'p':>6}  detectable")
    for loss in LOSSES:
        pairs = [RunPair(base, _plant_loss(loss, base, rankings)) for base, rankings in bases]
        outcome = check_run(Gate(), [pair.candidate for pair in pairs], pairs).outcome
        comparison = compare_runs(pairs, [MEASURE])[0].comparison
        difference = comparison.difference
        change = f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})"
        print(
            f"{loss.name:40} {loss.expected:9} {outcome:13} {change:29} {comparison.p:.4f}  {comparison.detectable:.4f}"
        )


def swap_second_and_third(hits: Sequence[str]) -> list[str]:
    return [*hits[:1], *hits[2:3], *hits[1:2], *hits[3:]]


def _read_rankings(folder: Path) -> dict[str, Rankings]:
    """The rankings by question."""
    rows = pq.read_table(folder / QUESTIONS, columns=["question_id", "stages"]).to_pylist()
    return {row["question_id"]: {stage["stage"]: stage["documents"] for stage in row["stages"]} for row in rows}


def _plant_loss(loss: Loss, base: MeasuredRun, rankings: Mapping[str, Rankings]) -> MeasuredRun:
    values = {
        id: measures(loss.plant(n, ranked), base.grades[id])[MEASURE] for n, (id, ranked) in enumerate(rankings.items())
    }
    return replace(base, values={MEASURE: values})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of rag evaluate --out")
    return parser.parse_args()


if __name__ == "__main__":
    main()
