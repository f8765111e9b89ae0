"""The offline judge against answers that people judged: does it tell those that their sources support from the others?

A dataset is a folder with judge.jsonl: {"context", "answer", "label"} a line, label 1 where the context supports the
answer. The context is one passage. Chance is an AUROC of .5; the confusion is at the default threshold.

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
class Judged:
    """`supported` is what people say."""

    supported: bool
    verdict: Verdict
    seconds: float


@dataclass(frozen=True)
class Figures:
    """`grades` counts the judge's, by what people say. `balanced_accuracy` takes its `supported` for one."""

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
        of = "\n".join(
            f"  people: {said:12}" + "".join(f"  {grade} {count}" for grade, count in counts.items() if count)
            for said, counts in self.grades.items()
        )
        return (
            f"{self.dataset}: {self.answers} answers, {_shown(self.supported)} supported\n"
            f"  AUROC {_shown(self.auroc)}; {self.milliseconds:.1f} ms an answer\n{of}\n"
            f"  graded supported: {_shown(self.recall)} of the supported, {_shown(self.false_alarms)} of the others; "
            f"balanced accuracy {_short(self.balanced_accuracy)}"
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
        figures.append(_figures(dataset.name, asyncio.run(_judged(judge, dataset))))
        print(figures[-1])
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in figures], indent=2) + "\n")


async def _judged(judge: Judge, dataset: Path) -> list[Judged]:
    judged = []
    for line in _lines(dataset):
        began = time.perf_counter()
        verdict = await judge.judge(Answer(text=line["answer"]), [_passage(line["context"])])
        judged.append(Judged(bool(line["label"]), verdict, time.perf_counter() - began))
    return judged


def _lines(dataset: Path) -> list[dict[str, str]]:
    path = dataset / "judge.jsonl"
    if not path.is_file():
        raise DatasetError(f"{dataset} must hold judge.jsonl, and does not")
    return list(json_lines(path))


def _passage(text: str) -> Passage:
    chunk = Chunk(id=NOBODY, document_id=NOBODY, ordinal=0, text=text, start=0, end=len(text))
    hit = Hit(chunk=chunk, origin=Origin(uri="", title=""), score=1.0)
    return Passage(n=1, hit=hit, text=text, start=0, chunks=(chunk,))


def _figures(dataset: str, judged: Sequence[Judged]) -> Figures:
    supported, others = ([each.verdict for each in judged if each.supported is side] for side in (True, False))
    recall, alarms = _graded_supported(supported), _graded_supported(others)
    return Figures(
        dataset=dataset,
        answers=len(judged),
        supported=share_estimate(len(supported), len(judged)),
        auroc=auroc_estimate([each.score for each in supported], [each.score for each in others]),
        grades={"supported": _counted(supported), "unsupported": _counted(others)},
        recall=recall,
        false_alarms=alarms,
        balanced_accuracy=(recall.mean + 1 - alarms.mean) / 2,
        milliseconds=1000 * sum(each.seconds for each in judged) / len(judged),
    )


def _graded_supported(verdicts: Sequence[Verdict]) -> Estimate:
    return share_estimate(sum(each.grade == "supported" for each in verdicts), len(verdicts))


def _counted(verdicts: Sequence[Verdict]) -> dict[Grade, int]:
    return {grade: sum(each.grade == grade for each in verdicts) for grade in GRADES}


def _shown(estimate: Estimate) -> str:
    return f"{_short(estimate.mean)} ({_short(estimate.low)}-{_short(estimate.high)})"


def _short(value: float) -> str:
    return f"{value:.3f}".lstrip("0")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="whose vectors of tokens are compared")
    parser.add_argument("--without-encoder", action="store_true", help="words alone")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
