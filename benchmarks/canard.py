"""The words that people add to a follow-up question so that it stands alone: how many of them does the search read?

CANARD has such a rewrite of each question (Elgohary et al., Can you unpack that?, EMNLP 2019). The words are those of
the lexical index, without stop words. Precision is the share of the added words that the rewrite adds too, and recall
the share of the rewrite's added words that are added; both over all questions with a history. F1 is the mean over
questions of the F1 of all words with those of the rewrite. `titles`: the history names the page as the document that
each answer cites.

    python -m benchmarks.canard DATA/canard_rewrite
"""

import argparse
import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, TypeAlias

from benchmarks.json_lines import json_lines
from benchmarks.machine import heading
from rag_core.protocols import Understander
from rag_core.settings import load_settings
from rag_core.stage import recording
from rag_core.text.analysis import terms
from rag_core.types import Message, Query, Understanding
from rag_core.wiring.understanding import build_rules


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowUp:
    """A question with its history, and with the rewrite of a person."""

    question: str
    rewrite: str
    title: str
    history: tuple[Message, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedWords:
    """Counts of added words: `right` are in the rewrite. `f1` is that of all words."""

    right: int
    added: int
    needed: int
    f1: float


Texts: TypeAlias = Callable[[FollowUp], Iterable[str]]
"""What is searched for a question."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="the folder with rewrites.jsonl")
    follow_ups = [read_follow_up(row) for row in json_lines(parser.parse_args().data / "rewrites.jsonl")]
    follow_ups = [follow_up for follow_up in follow_ups if follow_up.history]
    print(heading())
    print(f"{len(follow_ups)} questions with a history")
    print(f"{'searched':42}precision  recall     F1")
    for name, texts in list_ways(build_rules(load_settings(None, "default", (), {}))).items():
        counts = [count_words(follow_up, texts(follow_up)) for follow_up in follow_ups]
        print(f"{name:42}{format_counts(counts)}")


def read_follow_up(row: Mapping[str, Any]) -> FollowUp:
    history = tuple(Message(role=message["role"], text=message["content"]) for message in row["history"])
    return FollowUp(question=row["question"], rewrite=row["rewrite_human"], title=row["title"], history=history)


def list_ways(understander: Understander) -> dict[str, Texts]:
    def understand(follow_up: FollowUp, titles: bool) -> Understanding:
        history = [
            Message(role=message.role, text=message.text, titles=(follow_up.title,))
            if titles and message.role == "assistant"
            else message
            for message in follow_up.history
        ]
        with recording():
            return asyncio.run(understander.understand(Query(text=follow_up.question), history))

    def search_all(understanding: Understanding) -> list[str]:
        return [understanding.standalone, *(variant.text for variant in understanding.variants)]

    return {
        "question alone": lambda _: [],
        "previous question": lambda follow_up: [_last_text(follow_up, "user")],
        "last answer": lambda follow_up: [_last_text(follow_up, "assistant")],
        "whole history": lambda follow_up: [message.text for message in follow_up.history],
        "title of the page": lambda follow_up: [follow_up.title],
        "rules: standalone": lambda follow_up: [understand(follow_up, titles=False).standalone],
        "rules: standalone, titles": lambda follow_up: [understand(follow_up, titles=True).standalone],
        "rules: standalone and variants": lambda follow_up: search_all(understand(follow_up, titles=False)),
        "rules: standalone and variants, titles": lambda follow_up: search_all(understand(follow_up, titles=True)),
    }


def count_words(follow_up: FollowUp, texts: Iterable[str]) -> AddedWords:
    question, rewrite = read_words(follow_up.question), read_words(follow_up.rewrite)
    searched = question | read_words(" ".join(texts))
    added, needed = searched - question, rewrite - question
    total = len(searched) + len(rewrite)
    f1 = 2 * len(searched & rewrite) / total if total else 1.0
    return AddedWords(right=len(added & needed), added=len(added), needed=len(needed), f1=f1)


def read_words(text: str) -> frozenset[str]:
    return frozenset(terms(text, "en"))


def format_counts(counts: Sequence[AddedWords]) -> str:
    right, added, needed = (sum(getattr(count, name) for count in counts) for name in ("right", "added", "needed"))
    precision = f"{right / added:9.2f}" if added else f"{'-':>9}"
    return f"{precision} {right / needed:7.2f} {fmean(count.f1 for count in counts):6.3f}"


def _last_text(follow_up: FollowUp, role: str) -> str:
    return next((message.text for message in reversed(follow_up.history) if message.role == role), "")


if __name__ == "__main__":
    main()
