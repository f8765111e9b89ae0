"""The offline judge compared with people's judgements: does it separate supported from unsupported answers?

A dataset is a folder with judge.jsonl. Each line is {"_id", "context", "answer", "label"}; label is 1 if the context
supports the answer. The context is one passage. Guessing has an AUROC of .5. The grades are those at the default
threshold. `rag evaluate DATASET` computes the same figures for the judge of a profile.

    python -m benchmarks.judge DATASET ...
    python -m benchmarks.judge DATASET --without-encoder
    python -m benchmarks.judge DATASET --json judged.json
"""

import argparse
import json
from pathlib import Path

from benchmarks.machine import heading
from rag_core.config import BertEmbedder, HashingEmbedder, LexicalJudge
from rag_core.evaluation.claims import read_claims
from rag_core.evaluation.judge_figures import JudgeFigures, figures_to_json, judge_claims, measure_judge
from rag_core.evaluation.significance import Estimate
from rag_core.wiring.judging import build_local_judge


def main() -> None:
    arguments = _arguments()
    embedding = (
        HashingEmbedder(type="hashing")
        if arguments.without_encoder
        else BertEmbedder(type="bert", model=arguments.model)
    )
    judge = build_local_judge(LexicalJudge(type="lexical"), embedding)
    print(heading())
    rows = []
    for dataset in arguments.datasets:
        figures = measure_judge(list(judge_claims(judge, read_claims(dataset))))
        rows.append({"dataset": dataset.name, **figures_to_json(figures)})
        print(_format_figures(dataset.name, figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


def _format_figures(dataset: str, figures: JudgeFigures) -> str:
    lines = "\n".join(
        f"  people: {judgement:12}" + "".join(f"  {grade} {count}" for grade, count in counts.items() if count)
        for judgement, counts in figures.grades.items()
    )
    shown = {name: _format_estimate(estimate) for name, estimate in figures.measures.items()}
    return (
        f"{dataset}: {len(figures.judged)} answers, {shown['supported']} supported\n"
        f"  AUROC {shown['auroc']}; {figures.milliseconds:.1f} ms per answer\n{lines}\n"
        f"  graded supported: {shown['recall']} of the supported, {shown['false_alarms']} of the others; "
        f"balanced accuracy {shown['balanced_accuracy']}; kappa {shown['kappa']}"
    )


def _format_estimate(estimate: Estimate) -> str:
    return f"{_format_number(estimate.mean)} ({_format_number(estimate.low)}-{_format_number(estimate.high)})"


def _format_number(value: float) -> str:
    return f"{value:.3f}".replace("0.", ".", 1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="the encoder whose token vectors are compared")
    parser.add_argument("--without-encoder", action="store_true", help="compare words only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
