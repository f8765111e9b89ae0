"""The offline judge compared with people's judgements: does it separate supported from unsupported answers?

A dataset is a folder with judge.jsonl. Each line is {"context", "answer", "label"}; label is 1 if the context supports
the answer. The context is one passage. Guessing has an AUROC of .5. The grades are those at the default threshold.

    python -m benchmarks.judge DATASET ...
    python -m benchmarks.judge DATASET --without-encoder
    python -m benchmarks.judge DATASET --json judged.json
"""

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID

from benchmarks.json_lines import json_lines
from benchmarks.machine import heading
from rag_core.config import BertEmbedder, HashingEmbedder, LexicalJudge
from rag_core.errors import DatasetError
from rag_core.evaluation.answers import auroc_estimate, share_estimate
from rag_core.evaluation.significance import Estimate
from rag_core.protocols import Judge
from rag_core.types import Answer, Chunk, Grade, Hit, Origin, Passage, Verdict
from rag_core.wiring.judging import build_local_judge

GRADES: tuple[Grade, ...] = ("supported", "partial", "unsupported", "unchecked")
NOBODY = UUID(int=0)


@dataclass(frozen=True)
class JudgedAnswer:
    """The judge's verdict on an answer. `supported` is the judgement of people."""

    supported: bool
    verdict: Verdict
    seconds: float


@dataclass(frozen=True)
class Figures:
    """The figures of a dataset.

    `grades` counts the judge's grades by people's judgement. `balanced_accuracy` counts only the grade `supported`.
    """

    dataset: str
    answers: int
    supported: Estimate
    auroc: Estimate
    grades: dict[str, dict[Grade, int]]
    recall: Estimate
    false_alarms: Estimate
    balanced_accuracy: float
    milliseconds: float

    def __str__(self) -> str:
        lines = "\n".join(
            f"  people: {judgement:12}" + "".join(f"  {grade} {count}" for grade, count in counts.items() if count)
            for judgement, counts in self.grades.items()
        )
        recall, alarms = _format_estimate(self.recall), _format_estimate(self.false_alarms)
        return (
            f"{self.dataset}: {self.answers} answers, {_format_estimate(self.supported)} supported\n"
            f"  AUROC {_format_estimate(self.auroc)}; {self.milliseconds:.1f} ms per answer\n{lines}\n"
            f"  graded supported: {recall} of the supported, {alarms} of the others; "
            f"balanced accuracy {_format_number(self.balanced_accuracy)}"
        )


def main() -> None:
    arguments = _arguments()
    embedding = (
        HashingEmbedder(type="hashing")
        if arguments.without_encoder
        else BertEmbedder(type="bert", model=arguments.model)
    )
    judge = build_local_judge(LexicalJudge(type="lexical"), embedding)
    print(heading())
    figures = []
    for dataset in arguments.datasets:
        figures.append(_figures(dataset.name, asyncio.run(_judge_dataset(judge, dataset))))
        print(figures[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(dataset_figures) for dataset_figures in figures], indent=2) + "\n")


async def _judge_dataset(judge: Judge, dataset: Path) -> list[JudgedAnswer]:
    judged = []
    for line in _lines(dataset):
        began = time.perf_counter()
        verdict = await judge.judge(Answer(text=line["answer"]), [build_passage(line["context"])])
        judged.append(JudgedAnswer(bool(line["label"]), verdict, time.perf_counter() - began))
    return judged


def _lines(dataset: Path) -> list[dict[str, str]]:
    path = dataset / "judge.jsonl"
    if not path.is_file():
        raise DatasetError(f"{dataset} must contain judge.jsonl")
    return list(json_lines(path))


def build_passage(text: str, language: str = "") -> Passage:
    chunk = Chunk(id=NOBODY, document_id=NOBODY, ordinal=0, text=text, start=0, end=len(text))
    hit = Hit(chunk=chunk, origin=Origin(uri="", title="", language=language), score=1.0)
    return Passage(n=1, hit=hit, text=text, start=0, chunks=(chunk,))


def _figures(dataset: str, judged: Sequence[JudgedAnswer]) -> Figures:
    supported, others = ([answer.verdict for answer in judged if answer.supported is side] for side in (True, False))
    recall, alarms = _share_supported(supported), _share_supported(others)
    return Figures(
        dataset=dataset,
        answers=len(judged),
        supported=share_estimate(len(supported), len(judged)),
        auroc=auroc_estimate([verdict.score for verdict in supported], [verdict.score for verdict in others]),
        grades={"supported": _count_grades(supported), "unsupported": _count_grades(others)},
        recall=recall,
        false_alarms=alarms,
        balanced_accuracy=(recall.mean + 1 - alarms.mean) / 2,
        milliseconds=1000 * sum(answer.seconds for answer in judged) / len(judged),
    )


def _share_supported(verdicts: Sequence[Verdict]) -> Estimate:
    return share_estimate(sum(verdict.grade == "supported" for verdict in verdicts), len(verdicts))


def _count_grades(verdicts: Sequence[Verdict]) -> dict[Grade, int]:
    return {grade: sum(verdict.grade == grade for verdict in verdicts) for grade in GRADES}


def _format_estimate(estimate: Estimate) -> str:
    return f"{_format_number(estimate.mean)} ({_format_number(estimate.low)}-{_format_number(estimate.high)})"


def _format_number(value: float) -> str:
    return f"{value:.3f}".lstrip("0")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="the encoder whose token vectors are compared")
    parser.add_argument("--without-encoder", action="store_true", help="compare words only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
