"""What topic-shift detection adds to search: nDCG@10 of mtrag_un's questions, each after its conversation.

DATA is a folder with the folder mtrag_un. `natural` is the dataset's own history. `joined` has another conversation
before it, so that the subject certainly changes once; `after a change` are those of its questions that come right
after. The changes of earlier turns are those that the detector reported. `--pad` adds the passages of other datasets.
The weights are the factors `history_weight`; 1 only leaves out the messages before the last change of earlier turns.

    python -m benchmarks.topic_shift_search /data --pad /data/cranfield
"""

import argparse
import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from urllib.parse import unquote

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.config import Settings
from rag_core.evaluation.dataset import UNTITLED, read_corpus, read_qrels
from rag_core.evaluation.dataset_lines import read_json_lines
from rag_core.evaluation.metrics import Grades, ndcg, unique_ids
from rag_core.knowledge_base import KnowledgeBase
from rag_core.protocols import Retriever, Understander
from rag_core.retrieval.query.topic_shift import ShiftAwareUnderstander
from rag_core.retrieval.query.understood import ConversationRetriever
from rag_core.retrieval.variants import with_variants
from rag_core.settings import load_settings
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Document, Hit, Message, Query
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.retrieval import build_retriever
from rag_core.wiring.understanding import build_understander

SET = "mtrag_un"
HISTORY_LIMIT = 10
"""The last messages that a question is understood with, besides the first one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A graded question. `turn` counts from 1 within its own conversation."""

    query: Query
    grades: Grades
    turn: int


@dataclass(frozen=True, slots=True)
class CachedRetriever:
    """Searches each text once."""

    retriever: Retriever
    rankings: dict[tuple[str, int], list[Hit]] = field(default_factory=dict)

    async def retrieve(self, query: Query, k: int) -> list[Hit]:
        if (query.text, k) not in self.rankings:
            self.rankings[query.text, k] = await self.retriever.retrieve(query, k)
        return self.rankings[query.text, k]


def main() -> None:
    arguments = _arguments()
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        settings = load_settings(None, "default", [f"store.url={dsn}"], environment={})
        with KnowledgeBase(settings) as knowledge:
            report = knowledge.add(read_documents([arguments.data / SET, *arguments.pad]))
            print(f"{report.documents['completed']} documents")
        asyncio.run(_compare(settings, arguments))


async def _compare(settings: Settings, arguments: argparse.Namespace) -> None:
    corpus, remote = CorpusReader(Postgres.open(settings.store.url)), RemoteModels()
    try:
        retriever = with_variants(CachedRetriever(build_retriever(settings, corpus, remote, patient=True)), corpus)
        understander = build_understander(settings, corpus, remote)
        if not isinstance(understander, ShiftAwareUnderstander):
            raise SystemExit("conversation.topic_shift.type must be score or drift, got none")
        for name, is_joined in {"natural": False, "joined": True}.items():
            asked = [await _mark_shifts(understander, one) for one in read_questions(arguments.data / SET, is_joined)]
            print(f"{name}: {len(asked)} questions")
            await _report(asked, retriever, understander, arguments.weights)
            if is_joined:
                after = [one for one in asked if one.turn == 1]
                print(f"{name}, after a change: {len(after)} questions")
                await _report(after, retriever, understander, arguments.weights)
    finally:
        await corpus.close()


async def _report(
    asked: Sequence[Asked], retriever: Retriever, understander: ShiftAwareUnderstander, weights: Sequence[float]
) -> None:
    always = await _measure([_forget_changes(one) for one in asked], retriever, understander.understander)
    alone = await _measure(
        [replace(one, query=replace(one.query, history=())) for one in asked], retriever, understander
    )
    print(f"  {fmean(alone):.4f}  the question alone")
    print(f"  {fmean(always):.4f}  always with its history")
    for weight in weights:
        scores = await _measure(asked, retriever, replace(understander, history_weight=weight))
        wins = sum(score > other for score, other in zip(scores, always, strict=True))
        losses = sum(score < other for score, other in zip(scores, always, strict=True))
        print(f"  {fmean(scores):.4f}  history x {weight:g} after a change; {wins} better, {losses} worse than always")


async def _measure(asked: Sequence[Asked], retriever: Retriever, understander: Understander) -> list[float]:
    """The nDCG@10 of each question."""
    search = ConversationRetriever(understander, retriever)
    scores = []
    for one in asked:
        hits = await search.retrieve(one.query, 50)
        scores.append(ndcg(unique_ids(unquote(hit.origin.uri.rpartition("/")[2]) for hit in hits), one.grades, 10))
    return scores


def _forget_changes(asked: Asked) -> Asked:
    """The question with the history of a conversation without detection."""
    history = tuple(replace(message, is_shift=False) for message in asked.query.history)
    return replace(asked, query=replace(asked.query, history=history))


async def _mark_shifts(understander: ShiftAwareUnderstander, asked: Asked) -> Asked:
    """The question with its history as a gateway stores and reads it."""
    marked: list[Message] = []
    for message in asked.query.history:
        query = replace(asked.query, text=message.text, history=())
        if message.role == "user" and marked:
            message = replace(message, is_shift=(await understander.detector.measure(query, marked)).is_shift)
        marked.append(message)
    recent = marked[-HISTORY_LIMIT:]
    history = recent if len(recent) == len(marked) else [marked[0], *recent]
    return replace(asked, query=replace(asked.query, history=tuple(history)))


def read_questions(folder: Path, is_joined: bool) -> Iterator[Asked]:
    """Yields the graded questions that have a history, or that have one if conversations are joined."""
    grades: Mapping[str, Grades] = read_qrels(folder / "qrels" / "test.tsv")
    before: tuple[Message, ...] = ()
    for _, row in read_json_lines(folder / "conversations.jsonl"):
        own = tuple(Message(role=message["role"], text=message["content"]) for message in row["history"])
        history = (*before, *own) if is_joined else own
        if history and row["_id"] in grades:
            turn = 1 + sum(message.role == "user" for message in own)
            query = Query(text=str(row["question"]), history=history)
            yield Asked(query, grades[row["_id"]], turn)
        answer = Message(role="assistant", text=str(row["reference"] or ""))
        before = (*own, Message(role="user", text=str(row["question"])), answer)


def read_documents(folders: Sequence[Path]) -> Iterator[Document]:
    """Yields each document once. Only those of the first folder keep their ids: others are never relevant."""
    texts = set[str]()
    for index, folder in enumerate(folders):
        for document in read_corpus(folder / "corpus.jsonl"):
            if document.text.strip() and document.text not in texts:
                texts.add(document.text)
                uri = document.id if index == 0 else f"{folder.name}-{document.id}"
                yield Document(uri=uri, text=document.text, title=document.title or UNTITLED, language="en")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument(
        "--pad", type=Path, nargs="+", default=[], metavar="FOLDER", help="datasets with a corpus.jsonl"
    )
    parser.add_argument("--weights", type=float, nargs="+", default=[0, 0.25, 0.5, 0.75, 1])
    return parser.parse_args()


if __name__ == "__main__":
    main()
