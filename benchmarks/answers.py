"""Answers without a language model, on the product's own path: ingested, retrieved, packed, extracted, or refused.

Sentences, best first: recall@k of one that answers. In xquad_en it is in the right passage and holds the short answer;
in covidqa_spans it overlaps the span of the answer. Words: token F1 of the answers to clapnq_generation's questions,
each asked of its own passage, with the best of its references. Refusals: how well the confidence tells questions of
xquad_en from those of covidqa_spans, both asked of a store that holds xquad_en alone, and what is refused by default.
Intervals are of 95 %: of bootstraps, and Wilson's for shares.

    python -m benchmarks.answers DATA                      a folder with the three data sets in it
    python -m benchmarks.answers DATA --questions 100      a sample of each
    python -m benchmarks.answers DATA --set generation.sentences=1 --json
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.json_lines import json_lines
from benchmarks.machine import command, heading, machine
from benchmarks.scratch import scratch_folder, server_in
from rag_core.answering.generation.candidates import Candidate
from rag_core.answering.generation.extractive import RankedCandidates, SentenceExtractor, answer_pieces
from rag_core.answering.pipeline import Limits, QueryPipeline
from rag_core.config import Settings
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.evaluation.answers import (
    auroc_estimate,
    confusion,
    sentence_agreement,
    sentence_recall,
    share_estimate,
    token_f1,
)
from rag_core.evaluation.dataset import CorpusDocument, file_name, read_corpus, write_documents
from rag_core.evaluation.significance import Estimate, estimates
from rag_core.evaluation.spans import Span, align_spans
from rag_core.settings import load_settings
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Comparison, Prompt, Query, Reply, document_id
from rag_core.wiring.ingestion import build_inline_runner, build_sync
from rag_core.wiring.pipeline import build_pipeline
from rag_core.wiring.retrieval import build_retriever

XQUAD, COVIDQA, CLAPNQ = "xquad_en", "covidqa_spans", "clapnq_generation"
CUTS = (1, 3)
NOTHING = RankedCandidates(candidates=(), scores=(), confidence=0.0)
EVERY = 100
"""Questions between two lines of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`answers` are short ones, or written references; `spans` are of stored texts; `gold` are sentences."""

    text: str
    document: str
    answers: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    gold: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    question: Question
    reply: Reply
    ranked: RankedCandidates

    @property
    def refused(self) -> bool:
        return self.reply.answer.finish == "abstained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    questions: int
    estimate: Estimate
    target: float | None = None


@dataclass(slots=True)
class Watched:
    """A Generator that keeps what the one behind it went by."""

    extractive: SentenceExtractor
    ranked: RankedCandidates = NOTHING

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        self.ranked = await self.extractive.rank(prompt)
        for piece in answer_pieces(self.extractive.select(self.ranked)):
            yield piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    settings: Settings
    postgres: Postgres
    folder: Path
    pipeline: QueryPipeline
    watched: Watched

    def ingest(self, collection: str, documents: Sequence[CorpusDocument]) -> None:
        write_documents(documents, self.folder / collection)
        job = build_sync(self.settings, self.postgres, [str(self.folder / collection)], collection)
        chunks = job.run(build_inline_runner(self.settings)).chunks["stored"]
        _progress(f"{collection}: {len(documents)} documents, {chunks} chunks")

    def stored(self, collection: str, document: str) -> str:
        with self.postgres.connect() as connection:
            id = document_id(self.settings.tenant, collection, self.uri(collection, document))
            return Catalog(connection, self.settings.tenant).text(id)

    def uri(self, collection: str, document: str) -> str:
        return (self.folder / collection / file_name(document)).as_uri()

    async def ask_all(self, collection: str, questions: Sequence[Question], own: bool = False) -> list[Asked]:
        """Of the collection, or each of its `own` document alone."""
        asked = []
        for number, question in enumerate(questions, 1):
            asked.append(await self._ask(collection, question, own))
            if number % EVERY == 0:
                _progress(f"{collection}: {number} of {len(questions)} questions")
        return asked

    async def _ask(self, collection: str, question: Question, own: bool) -> Asked:
        uri = self.uri(collection, question.document)
        query = Query(
            text=question.text,
            tenant=self.settings.tenant,
            collection=collection,
            filters=Comparison(key="uri", type="eq", value=uri) if own else None,
        )
        self.watched.ranked = NOTHING
        reply = await self.pipeline.answer(query)
        return Asked(question=question, reply=reply, ranked=self.watched.ranked)

    def recalls(self, collection: str, asked: Sequence[Asked], targets: Sequence[float]) -> Iterator[Figure]:
        """Of the ranking, and of what was answered, where a refusal is nothing."""
        golds = [[self._answers(collection, each.question, one) for one in each.ranked.candidates] for each in asked]
        for k, target in zip(CUTS, targets, strict=True):
            found = sum(sentence_recall(gold, k) for gold in golds)
            yield _share(f"{collection} sentence recall@{k}", int(found), len(asked), target)
        given = [self.watched.extractive.select(each.ranked) for each in asked]
        held = sum(
            any(self._answers(collection, each.question, one) for one in chosen)
            for each, chosen in zip(asked, given, strict=True)
        )
        yield _share(f"{collection} answers with a gold sentence", held, len(asked))
        yield _mean(f"{collection} sentences an answer", [len(chosen) for chosen in given if chosen])

    def _answers(self, collection: str, question: Question, candidate: Candidate) -> bool:
        passage = candidate.passage
        if passage.hit.origin.uri != self.uri(collection, question.document):
            return False
        start, end = passage.start + candidate.start, passage.start + candidate.end
        place = Span(document=question.document, start=start, end=end)
        return any(answer in candidate.text for answer in question.answers) or any(map(place.overlaps, question.spans))


def main() -> None:
    arguments = _arguments()
    _progress(heading())
    settings = load_settings(None, "default", arguments.set, environment={})
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        figures, latencies = asyncio.run(_measured(settings, Postgres.open(dsn), scratch, arguments))
    if arguments.json:
        described = {"machine": machine(), "command": command(), "pipeline_version": settings.pipeline_version}
        print(json.dumps({**described, "figures": list(map(asdict, figures)), "milliseconds": latencies}, indent=2))
    else:
        print(heading())
        _show(figures, latencies)


async def _measured(
    settings: Settings, postgres: Postgres, folder: Path, arguments: argparse.Namespace
) -> tuple[list[Figure], Mapping[str, Mapping[str, float]]]:
    corpus = CorpusReader(postgres)
    try:
        bench = _bench(settings, postgres, folder, corpus)
        return await _figures(bench, arguments.data, _sampling(arguments.questions))
    finally:
        await corpus.close()


def _bench(settings: Settings, postgres: Postgres, folder: Path, corpus: CorpusReader) -> Bench:
    chosen = build_pipeline(settings, corpus, build_retriever(settings, corpus), InMemoryConversations())
    if not isinstance(chosen.generator, SentenceExtractor):
        raise SystemExit(f"generation.type must be extractive, got {settings.generation.type}")
    watched = Watched(chosen.generator)
    patient = Limits(depth=chosen.limits.depth)  # a busy machine costs no answers
    watching = replace(chosen, generator=watched, limits=patient)
    return Bench(settings=settings, postgres=postgres, folder=folder, pipeline=watching, watched=watched)


async def _figures(
    bench: Bench, data: Path, sampled: Callable[[Sequence[Question]], list[Question]]
) -> tuple[list[Figure], Mapping[str, Mapping[str, float]]]:
    bench.ingest(XQUAD, list(read_corpus(data / XQUAD / "corpus.jsonl")))
    known = await bench.ask_all(XQUAD, sampled(_xquad(data / XQUAD)))
    strange = await bench.ask_all(XQUAD, sampled(_covidqa(data / COVIDQA)))
    articles = list(read_corpus(data / COVIDQA / "documents.jsonl"))
    bench.ingest(COVIDQA, articles)
    covid = await bench.ask_all(COVIDQA, _aligned(bench, articles, sampled(_covidqa(data / COVIDQA))))
    bench.ingest(CLAPNQ, [_clapnq_document(row) for row in json_lines(data / CLAPNQ / "items.jsonl")])
    clapnq = await bench.ask_all(CLAPNQ, sampled(_clapnq(data / CLAPNQ)), own=True)
    figures = [
        *bench.recalls(XQUAD, known, targets=(0.78, 0.92)),
        *bench.recalls(COVIDQA, covid, targets=(0.43, 0.56)),
        *_written(clapnq, bench.watched.extractive),
        *_refusals(known, strange, bench.watched.extractive.threshold),
    ]
    return figures, _latencies([*known, *covid])


def _written(asked: Sequence[Asked], extractive: SentenceExtractor) -> Iterator[Figure]:
    """First as if nothing were refused."""
    ready = replace(extractive, threshold=0.0)
    chosen = [ready.select(each.ranked) for each in asked]
    scores = [token_f1(_text(own), each.question.answers) for own, each in zip(chosen, asked, strict=True)]
    yield _mean(f"{CLAPNQ} token F1", scores, target=0.55)
    answered = [0.0 if each.refused else score for each, score in zip(asked, scores, strict=True)]
    yield _mean(f"{CLAPNQ} token F1, refusals as 0", answered)
    agreed = [
        sentence_agreement({one.text for one in own}, each.question.gold)
        for own, each in zip(chosen, asked, strict=True)
    ]
    yield _mean(f"{CLAPNQ} sentence precision", [each.precision for each in agreed])
    yield _mean(f"{CLAPNQ} sentence recall", [each.recall for each in agreed])


def _text(chosen: Sequence[Candidate]) -> str:
    return " ".join(candidate.text for candidate in chosen)


def _mean(name: str, values: Sequence[float], target: float | None = None) -> Figure:
    (estimate,) = estimates(np.array([values], np.float64).T)
    return Figure(name=name, questions=len(values), estimate=estimate, target=target)


def _share(name: str, count: int, of: int, target: float | None = None) -> Figure:
    return Figure(name=name, questions=of, estimate=share_estimate(count, of), target=target)


def _refusals(known: Sequence[Asked], strange: Sequence[Asked], threshold: float) -> Iterator[Figure]:
    answerable, unanswerable = ([each.ranked.confidence for each in asked] for asked in (known, strange))
    counts = confusion(answerable, unanswerable, threshold)
    questions = len(known) + len(strange)
    area = auroc_estimate(answerable, unanswerable)
    yield Figure(name="AUROC of the confidence", questions=questions, estimate=area, target=0.89)
    yield _share(f"{XQUAD} refused below {threshold}", counts.refused, len(known))
    yield _share(f"{COVIDQA} refused below {threshold}", counts.unanswerable_refused, len(strange))


def _latencies(asked: Sequence[Asked]) -> dict[str, dict[str, float]]:
    """Of stages, in milliseconds."""
    found: dict[str, list[float]] = {}
    for report in (report for each in asked for report in each.reply.stages if not report.skipped):
        found.setdefault(report.stage, []).append(1000 * report.seconds)
    return {
        stage: dict(zip(("p50", "p95"), np.percentile(own, [50, 95]).round(1).tolist(), strict=True))
        for stage, own in found.items()
    }


def _xquad(folder: Path) -> list[Question]:
    return [
        Question(text=row["question"], document=row["passage"], answers=tuple(map(_one_line, row["answers"])))
        for row in json_lines(folder / "answers.jsonl")
    ]


def _covidqa(folder: Path) -> list[Question]:
    """Spans are of the original texts."""
    return [
        Question(
            text=row["question"],
            document=row["doc_id"],
            spans=tuple(Span(document=row["doc_id"], start=each["start"], end=each["end"]) for each in row["answers"]),
        )
        for row in json_lines(folder / "questions.jsonl")
    ]


def _clapnq(folder: Path) -> list[Question]:
    """Those that their passages answer. Sentences are gold that any reference was written from."""
    return [
        Question(
            text=row["question"],
            document=row["_id"],
            answers=tuple(each["answer"] for each in row["references"]),
            gold=frozenset(_one_line(text) for each in row["references"] for text in each["selected_sentences"]),
        )
        for row in json_lines(folder / "items.jsonl")
        if row["answerable"]
    ]


def _clapnq_document(row: Mapping[str, Any]) -> CorpusDocument:
    (passage,) = row["passages"]
    return CorpusDocument(id=row["_id"], title=passage["title"], text=passage["text"])


def _aligned(bench: Bench, articles: Sequence[CorpusDocument], questions: Sequence[Question]) -> list[Question]:
    """With spans of the stored texts."""
    originals = {article.id: article.text for article in articles}
    stored = {article.id: bench.stored(COVIDQA, article.id) for article in articles}
    return [
        replace(each, spans=tuple(align_spans(each.spans, originals[each.document], stored[each.document])))
        for each in questions
    ]


def _sampling(count: int | None) -> Callable[[Sequence[Question]], list[Question]]:
    """The same are drawn of the same."""
    if count is None:
        return list
    return lambda questions: [questions[place] for place in _drawn(len(questions), count)]


def _drawn(questions: int, count: int) -> list[int]:
    return np.random.default_rng(9).permutation(questions)[:count].tolist()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _show(figures: Sequence[Figure], latencies: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'':46} {'questions':>9} {'value':>7} {'95 % interval':>15}  target")
    for each in figures:
        found, target = each.estimate, f">= {each.target:.2f}" if each.target else ""
        interval = f"{found.low:.3f} to {found.high:.3f}"
        print(f"{each.name:46} {each.questions:9} {found.mean:7.3f} {interval:>15}  {target}".rstrip())
    for stage, own in latencies.items():
        print(f"{stage:46} p50 {own['p50']:.1f} ms, p95 {own['p95']:.1f} ms")


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"the folder that holds {XQUAD}, {COVIDQA} and {CLAPNQ}")
    parser.add_argument("--questions", type=int, help="a sample of so many of each set; else all")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
