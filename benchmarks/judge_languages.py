"""The offline judge across languages: a sentence in one language, and its paragraph in another.

A dataset is a folder with parallel.jsonl. Each line is {"_id", "language", "text"}: a paragraph has the same _id in
every language. Each sentence is judged by its paragraph (right) and by the next one (wrong), in its own language and in
every other one. Then the same is done with the beginnings of the sentences, whose language is harder to identify.

    python -m benchmarks.judge_languages DATASET ...
    python -m benchmarks.judge_languages DATASET --with-encoder --limit 20
"""

import argparse
import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TypeAlias

from benchmarks.json_lines import json_lines
from benchmarks.machine import heading
from rag_core.config import BertEmbedder, HashingEmbedder, LexicalJudge
from rag_core.errors import DatasetError
from rag_core.evaluation.answers import share_estimate
from rag_core.evaluation.judge_figures import GRADES, build_passage
from rag_core.protocols import Judge
from rag_core.text.sentences import sentence_spans
from rag_core.types import Answer, Grade
from rag_core.wiring.judging import build_local_judge

SHORT_CHARS = 24
"""The length of a sentence's beginning, which ends with a word."""

Paragraphs: TypeAlias = Mapping[str, Mapping[str, str]]
"""The texts by language and id."""


@dataclass(frozen=True)
class Pair:
    """A claim and the passage that it is judged by. `right`: the passage is the claim's own paragraph."""

    claim: str
    passage: str
    languages: tuple[str, str]
    right: bool


def main() -> None:
    arguments = _arguments()
    embedding = (
        BertEmbedder(type="bert", model="all-MiniLM-L6-v2")
        if arguments.with_encoder
        else HashingEmbedder(type="hashing")
    )
    judge = build_local_judge(LexicalJudge(type="lexical"), embedding)
    print(heading())
    for dataset in arguments.datasets:
        paragraphs = _paragraphs(dataset)
        print(f"{dataset.name}: {', '.join(sorted(paragraphs))}")
        pairs = list(_pairs(paragraphs, arguments.limit))
        short = [Pair(_beginning(pair.claim), pair.passage, pair.languages, pair.right) for pair in pairs]
        for name, chosen in (("sentences", pairs), (f"the first {SHORT_CHARS} characters", short)):
            print(f" {name}")
            print("\n".join(_table(chosen, asyncio.run(_judge_pairs(judge, chosen)))))


def _paragraphs(dataset: Path) -> Paragraphs:
    path = dataset / "parallel.jsonl"
    if not path.is_file():
        raise DatasetError(f"{dataset} must contain parallel.jsonl")
    paragraphs: dict[str, dict[str, str]] = defaultdict(dict)
    for line in json_lines(path):
        paragraphs[line["language"]][line["_id"]] = line["text"]
    return paragraphs


def _pairs(paragraphs: Paragraphs, limit: int) -> Iterator[Pair]:
    """Yields right and wrong pairs of sentences and paragraphs, at most `limit` sentences for two languages."""
    for first, second in product(sorted(paragraphs), repeat=2):
        shared = [name for name in paragraphs[first] if name in paragraphs[second]]
        sentences = [
            (index, paragraphs[first][name][start:end])
            for index, name in enumerate(shared)
            for start, end in sentence_spans(paragraphs[first][name])
        ]
        for index, sentence in sentences[:: max(1, len(sentences) // limit)][:limit]:
            for right in (True, False):
                name = shared[index] if right else shared[(index + 1) % len(shared)]
                yield Pair(sentence, paragraphs[second][name], (first, second), right)


def _beginning(sentence: str) -> str:
    head = sentence[:SHORT_CHARS]
    return head.rsplit(" ", 1)[0] if len(sentence) > SHORT_CHARS else sentence


async def _judge_pairs(judge: Judge, pairs: Sequence[Pair]) -> list[Grade]:
    return [
        (await judge.judge(Answer(text=pair.claim), [build_passage(pair.passage, pair.languages[1])])).grade
        for pair in pairs
    ]


def _table(pairs: Sequence[Pair], grades: Sequence[Grade]) -> Iterator[str]:
    for same, right in product((True, False), repeat=2):
        counts = Counter(
            grade
            for pair, grade in zip(pairs, grades, strict=True)
            if (pair.languages[0] == pair.languages[1]) is same and pair.right is right
        )
        unchecked = share_estimate(counts["unchecked"], counts.total())
        shares = "  ".join(f"{grade} {counts[grade] / counts.total():.1%}" for grade in GRADES)
        yield (
            f"  {'same' if same else 'other'} language, {'right' if right else 'wrong'} paragraph:"
            f" {counts.total()} claims  {shares} ({unchecked.low:.1%}-{unchecked.high:.1%})"
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", type=Path, metavar="DATASET")
    parser.add_argument("--with-encoder", action="store_true", help="compare token vectors, too")
    parser.add_argument("--limit", type=int, default=60, metavar="N", help="sentences for two languages (default 60)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
