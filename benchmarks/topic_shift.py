"""Changes of the subject: conversations of two datasets are joined, and each boundary should be detected.

DATA is a folder with the folders canard_rewrite and mtrag_un. The AUROC is the probability that a score is lower for
the first question of a conversation than for another one. The idf is that of the messages of the dataset. `found` is
the share of boundaries below a threshold, and `false alarms` that of the other questions. The thresholds of the
sensitivities were chosen from these curves. The cost is that of one turn, in encodings of its question: the earlier
texts are cached, as in a conversation, but neither the question nor the last answer is.

    python -m benchmarks.topic_shift /data
    python -m benchmarks.topic_shift /data --curve
"""

import argparse
import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import fmean, median

from benchmarks.machine import heading
from rag_core.config import BertEmbedder
from rag_core.evaluation.answers import auroc
from rag_core.evaluation.dataset_lines import Row, read_json_lines
from rag_core.models.encoders.cached_embedder import CachedEmbedder
from rag_core.models.encoders.query_embedder import ThreadedQueryEmbedder
from rag_core.protocols import QueryEmbedder
from rag_core.retrieval.query.adaptive import stability
from rag_core.retrieval.query.topic_shift import (
    Exchange,
    ShiftSignals,
    TopicShiftDetector,
    WindowDriftDetector,
    list_exchanges,
)
from rag_core.text.analysis import terms
from rag_core.types import Message, Query
from rag_core.wiring.embedding import load_shared_encoder
from rag_core.wiring.understanding import SHIFT_THRESHOLDS

WINDOW_THRESHOLD = 0.4
CURVE = [step / 20 for step in range(2, 13)]


@dataclass(frozen=True, slots=True)
class Turn:
    """A question after the exchanges before it, and whether it begins a conversation."""

    question: str
    earlier: tuple[Exchange, ...]
    is_first: bool


@dataclass(frozen=True, slots=True)
class MeasuredTurn:
    is_first: bool
    signals: ShiftSignals
    window: float
    """The cosine with the mean of the last three questions."""
    last: float
    """The cosine with the last question."""


@dataclass(frozen=True, slots=True)
class MessageRarities:
    """The idf of a question's terms over texts, of which `counts` holds how many contain each."""

    counts: Mapping[str, int]
    texts: int

    async def idf(self, query: Query) -> Mapping[str, float]:
        found = {term: self.counts.get(term, 0) for term in terms(query.text, "en")}
        return {term: math.log(1 + (self.texts - count + 0.5) / (count + 0.5)) for term, count in found.items()}


SCORES: Mapping[str, Callable[[MeasuredTurn], float]] = {
    "cosine with the last question": lambda turn: turn.last,
    "cosine with the mean of three (drift)": lambda turn: turn.window,
    "max cosine, questions and answers": lambda turn: turn.signals.similarity,
    "  + overlap": lambda turn: replace(turn.signals, refers_back=False).score,
    "  + overlap + reference (score)": lambda turn: turn.signals.score,
}


def main() -> None:
    arguments = _arguments()
    encoder = ThreadedQueryEmbedder(load_shared_encoder(BertEmbedder(type="bert", model=arguments.model)))
    print(heading())
    for name, read in {"canard_rewrite": read_canard, "mtrag_un": read_mtrag}.items():
        asyncio.run(_report(name, list(read(arguments.data / name)), encoder, arguments))


async def _report(
    name: str, conversations: Sequence[Sequence[Exchange]], encoder: QueryEmbedder, arguments: argparse.Namespace
) -> None:
    turns, rarities = list(join_conversations(conversations)), count_terms(conversations)
    detector = TopicShiftDetector(CachedEmbedder(encoder, size=100_000), rarities)
    measured = [await _measure(detector, turn) for turn in turns]
    print(f"{name}: {len(turns)} questions, {sum(turn.is_first for turn in turns)} changes of the subject")
    for score, compute in SCORES.items():
        print(f"  AUROC {_auroc(measured, compute):.3f}  {score}")
    _print_rates("cosine with the last question", measured, SCORES["cosine with the last question"], WINDOW_THRESHOLD)
    _print_rates("drift", measured, lambda turn: turn.window, WINDOW_THRESHOLD)
    for sensitivity, threshold in SHIFT_THRESHOLDS.items():
        _print_rates(f"score, {sensitivity}", measured, lambda turn: turn.signals.score, threshold)
    for threshold in CURVE if arguments.curve else ():
        _print_rates("score", measured, lambda turn: turn.signals.score, threshold)
    await _report_cost(encoder, rarities, turns[:: max(1, len(turns) // arguments.timed)])


async def _measure(detector: TopicShiftDetector, turn: Turn) -> MeasuredTurn:
    query = Query(text=turn.question)
    return MeasuredTurn(
        turn.is_first,
        await detector.compare(query, turn.earlier),
        window=await WindowDriftDetector(detector.embedder).compare(query, turn.earlier),
        last=await WindowDriftDetector(detector.embedder).compare(query, turn.earlier[-1:]),
    )


def _auroc(turns: Sequence[MeasuredTurn], score: Callable[[MeasuredTurn], float]) -> float:
    return auroc(
        [-score(turn) for turn in turns if turn.is_first], [-score(turn) for turn in turns if not turn.is_first]
    )


def _print_rates(
    name: str, turns: Sequence[MeasuredTurn], score: Callable[[MeasuredTurn], float], threshold: float
) -> None:
    """Prints the rates, the share of right decisions, and the mean stability: turns since a shift / 5, at most 1."""
    shifts = [score(turn) < threshold for turn in turns]
    first = [is_shift for is_shift, turn in zip(shifts, turns, strict=True) if turn.is_first]
    others = [is_shift for is_shift, turn in zip(shifts, turns, strict=True) if not turn.is_first]
    accuracy = fmean(is_shift == turn.is_first for is_shift, turn in zip(shifts, turns, strict=True))
    print(
        f"  below {threshold:.2f}: false alarms {fmean(others):5.1%}, found {fmean(first):5.1%},"
        f" accuracy {accuracy:5.1%}, stability {_mean_stability(shifts):.2f}  ({name})"
    )


def _mean_stability(shifts: Sequence[bool]) -> float:
    since, values = 0, []
    for is_shift in shifts:
        since = 0 if is_shift else since + 1
        values.append(stability(since))
    return fmean(values)


async def _report_cost(encoder: QueryEmbedder, rarities: MessageRarities, turns: Sequence[Turn]) -> None:
    """Times each turn right after the encoding of its question."""
    ratios, seconds = [], []
    for turn in turns:
        if not turn.earlier[-1].answer:
            continue
        embedder = CachedEmbedder(encoder)
        *before, last = turn.earlier
        await embedder.embed([last.question, *(text for exchange in before for text in exchange.texts)])
        began = time.perf_counter()
        await encoder.embed([turn.question])
        encoded = time.perf_counter()
        await TopicShiftDetector(embedder, rarities).compare(Query(text=turn.question), turn.earlier)
        ended = time.perf_counter()
        ratios.append((ended - encoded) / (encoded - began))
        seconds.append(ended - encoded)
    print(
        f"  cost of a turn: {median(ratios):.2f} x encoding the question (median of {len(ratios)}),"
        f" {1e3 * median(seconds):.1f} ms"
    )


def join_conversations(conversations: Sequence[Sequence[Exchange]]) -> Iterator[Turn]:
    """Yields the questions of the joined conversations, each after the three exchanges before it."""
    earlier: tuple[Exchange, ...] = ()
    for conversation in conversations:
        for index, exchange in enumerate(conversation):
            if earlier:
                yield Turn(exchange.question, earlier, is_first=index == 0)
            earlier = (*earlier, exchange)[-3:]


def count_terms(conversations: Sequence[Sequence[Exchange]]) -> MessageRarities:
    exchanges = [exchange for conversation in conversations for exchange in conversation]
    texts = [text for exchange in exchanges for text in (exchange.question, exchange.answer) if text]
    counts = Counter(term for text in texts for term in {*terms(text, "en")})
    return MessageRarities(counts, len(texts))


def read_canard(folder: Path) -> Iterator[list[Exchange]]:
    """Yields conversations. The history of the next question has the answer; that of the last one is unknown."""
    rows = [row for _, row in read_json_lines(folder / "rewrites.jsonl")]
    for _, group in groupby(rows, key=lambda row: row["conversation_id"]):
        *_, last = group
        yield [*_read_history(last), Exchange(str(last["question"]))]


def read_mtrag(folder: Path) -> Iterator[list[Exchange]]:
    for _, row in read_json_lines(folder / "conversations.jsonl"):
        yield [*_read_history(row), Exchange(str(row["question"]), str(row["reference"] or ""))]


def _read_history(row: Row) -> list[Exchange]:
    messages = [Message(role=message["role"], text=message["content"]) for message in row["history"]]
    return list_exchanges(messages)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--model", default="all-MiniLM-L6-v2", help="the encoder of questions and answers")
    parser.add_argument("--timed", type=int, default=200, help="number of turns whose cost is measured")
    parser.add_argument("--curve", action="store_true", help="print the rates at other thresholds, too")
    return parser.parse_args()


if __name__ == "__main__":
    main()
