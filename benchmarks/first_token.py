"""How long the first words of an answer take, model warm, beside the search for it: on the demo's handbook.

Each question is asked in turn, `--rounds` times, after one round that loads and compiles. Before each round so many
others are asked that vectors are made again, as those of new questions are. Without `--set` the default profile
answers, by quoting. Every question's own time is in the table, and the whole answer's, judged.

    python -m benchmarks.first_token
    python -m benchmarks.first_token --rounds 20 --set generation.sentences=1
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.json_lines import json_lines
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core import KnowledgeBase
from rag_core.events import Event, TextDelta
from rag_core.retrieval.question_cache import MAX_CACHED_QUESTIONS
from rag_core.settings import load_settings

DEMO = Path(__file__).parents[1] / "demo"


@dataclass(frozen=True, slots=True)
class Timed:
    """Milliseconds."""

    retrieve: float
    first_token: float
    whole: float


def main() -> None:
    arguments = _arguments()
    print(heading())
    questions = [row["question"] for row in json_lines(DEMO / "questions.jsonl")]
    with scratch_folder() as scratch, server_in(scratch) as store:
        settings = load_settings(None, "default", [f"store.url={store}", *arguments.set], environment={})
        with KnowledgeBase(settings) as knowledge:
            knowledge.ingest(DEMO / "corpus")
            _asked(knowledge, questions)
            _show([timed for _ in range(arguments.rounds) for timed in _asked_anew(knowledge, questions)])


def _asked_anew(knowledge: KnowledgeBase, questions: Sequence[str]) -> list[Timed]:
    """After so many others that none of their vectors is kept."""
    for number in range(MAX_CACHED_QUESTIONS):
        knowledge.search(f"What is number {number}?", k=1)
    return _asked(knowledge, questions)


def _asked(knowledge: KnowledgeBase, questions: Sequence[str]) -> list[Timed]:
    return [_timed(knowledge, question) for question in questions]


def _timed(knowledge: KnowledgeBase, question: str) -> Timed:
    """An abstention's words are its first ones, too."""
    firsts: list[float] = []

    def hear(event: Event) -> None:
        if isinstance(event, TextDelta):
            firsts.append(time.perf_counter())

    began = time.perf_counter()
    reply = knowledge.ask(question, on_event=hear)
    ended = time.perf_counter()
    retrieve = next(report.seconds for report in reply.stages if report.stage == "retrieve")
    return Timed(1000 * retrieve, 1000 * (firsts[0] - began), 1000 * (ended - began))


def _show(asked: Sequence[Timed]) -> None:
    print(f"{len(asked)} answers\n{'ms':14} {'p50':>8} {'p95':>8}")
    for name in ("retrieve", "first_token", "whole"):
        p50, p95 = np.percentile([getattr(timed, name) for timed in asked], [50, 95])
        print(f"{name:14} {p50:8.1f} {p95:8.1f}")
    ratio = np.median([timed.first_token / timed.retrieve for timed in asked])
    print(f"first token / retrieve, median of pairs: {ratio:.2f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
