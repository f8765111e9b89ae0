"""Time to the first words of an answer with loaded models, and the time of its search, on the demo's handbook.

Each question is asked in turn, `--rounds` times, after one round that loads and compiles. Before each round, other
questions fill the cache of question vectors, so that the questions are embedded again like new ones. Without `--set`,
the default profile answers with quoted sentences. The table has the time of the search (`retrieve`), the time to the
first words (`first_token`) and the time of the judged answer (`whole`).

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
class AnswerTimes:
    """Milliseconds from the question."""

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
            _ask_all(knowledge, questions)
            _show([times for _ in range(arguments.rounds) for times in _ask_uncached(knowledge, questions)])


def _ask_uncached(knowledge: KnowledgeBase, questions: Sequence[str]) -> list[AnswerTimes]:
    """Asks the questions after so many others that the cache has none of their vectors."""
    for number in range(MAX_CACHED_QUESTIONS):
        knowledge.search(f"What is number {number}?", k=1)
    return _ask_all(knowledge, questions)


def _ask_all(knowledge: KnowledgeBase, questions: Sequence[str]) -> list[AnswerTimes]:
    return [_ask(knowledge, question) for question in questions]


def _ask(knowledge: KnowledgeBase, question: str) -> AnswerTimes:
    """The times of one answer. The words of an abstention count as first words, too."""
    piece_times: list[float] = []

    def note_time(event: Event) -> None:
        if isinstance(event, TextDelta):
            piece_times.append(time.perf_counter())

    began = time.perf_counter()
    reply = knowledge.ask(question, on_event=note_time)
    ended = time.perf_counter()
    retrieve = next(report.seconds for report in reply.stages if report.stage == "retrieve")
    return AnswerTimes(1000 * retrieve, 1000 * (piece_times[0] - began), 1000 * (ended - began))


def _show(answers: Sequence[AnswerTimes]) -> None:
    print(f"{len(answers)} answers\n{'ms':14} {'p50':>8} {'p95':>8}")
    for name in ("retrieve", "first_token", "whole"):
        p50, p95 = np.percentile([getattr(times, name) for times in answers], [50, 95])
        print(f"{name:14} {p50:8.1f} {p95:8.1f}")
    ratio = np.median([times.first_token / times.retrieve for times in answers])
    print(f"first token / retrieve, median of pairs: {ratio:.2f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
