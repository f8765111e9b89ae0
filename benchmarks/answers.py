"""Answers without a language model, with the whole pipeline: ingest, retrieve, pack, and extract or refuse.

Sentences: recall@k of a sentence that answers, in the ranking. In xquad_en such a sentence is in the right passage and
contains the short answer. In covidqa_spans it overlaps the span of the answer.

Words: token F1 of the answers to clapnq_generation's questions, compared with the best reference. Each question
searches only its own passage.

Kinds of replies: answers, passages (quotes without an answer, below `answering.confident`) and refusals, counted apart.
All questions of xquad_en and covidqa_spans search a store that contains only xquad_en, and the AUROC measures how well
the confidence separates the two sets. Refusals are also counted by the words of the question, and with a preamble of 40
words before each question. Two hundred generated look-alike documents are asked one question each.

Intervals are 95 %: bootstrap intervals, and Wilson intervals for shares.

    python -m benchmarks.answers DATA                      a folder that contains the three datasets
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

import numpy as np

from benchmarks.json_lines import json_lines
from benchmarks.lookalikes import LookAlike, generate_lookalikes
from benchmarks.machine import command, heading
from benchmarks.scratch import scratch_folder, server_in
from jobs.machine import describe_machine
from rag_core.answering.generation.candidates import Candidate
from rag_core.answering.generation.confidence import Signals
from rag_core.answering.generation.extractive import RankedCandidates, SentenceExtractor
from rag_core.answering.pipeline import AnswerLimits, QueryPipeline
from rag_core.config import Settings
from rag_core.conversation.in_memory import InMemoryConversations
from rag_core.evaluation import question as dataset_question
from rag_core.evaluation.answers import (
    auroc_estimate,
    sentence_agreement,
    sentence_recall,
    share_estimate,
    token_f1,
)
from rag_core.evaluation.dataset import file_name, read_corpus, read_questions, write_documents
from rag_core.evaluation.question import CorpusDocument
from rag_core.evaluation.significance import Estimate, estimates
from rag_core.evaluation.spans import Span, align_spans
from rag_core.settings import load_settings
from rag_core.storage.catalog import Catalog
from rag_core.storage.corpus import CorpusReader
from rag_core.storage.postgres import Postgres
from rag_core.types import Comparison, Hit, Prompt, Query, Reply, document_id
from rag_core.wiring.ingestion import build_inline_runner, build_sync
from rag_core.wiring.models import RemoteModels
from rag_core.wiring.pipeline import build_pipeline
from rag_core.wiring.retrieval import build_retriever

XQUAD, COVIDQA, CLAPNQ, LOOKALIKES = "xquad_en", "covidqa_spans", "clapnq_generation", "lookalikes"
KINDS = {"stop": "answer", "passages": "passages", "abstained": "refusal"}
"""The kinds of replies, by why an answer ended."""

LENGTHS = ((1, 7), (8, 10), (11, 14), (15, 99))
"""The bins of a question's length, in words."""

PREAMBLE = (
    "I am preparing a talk for my colleagues next week and have read a good many articles about it, but none of them"
    " was of much help to me, so please look into the documents that we keep here and tell me: "
)
CUTS = (1, 3)
NOTHING = RankedCandidates(candidates=(), scores=(), chosen=(), signals=Signals())
PROGRESS_STEP = 100
"""Questions between two progress lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its grades.

    `answers` are short answers or written references. `spans` are positions in texts. `gold` are sentences.
    """

    text: str
    document: str
    answers: tuple[str, ...] = ()
    spans: tuple[Span, ...] = ()
    gold: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredQuestion:
    question: Question
    reply: Reply
    ranked: RankedCandidates
    hits: tuple[Hit, ...]

    @property
    def kind(self) -> str:
        return KINDS[self.reply.answer.finish]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    name: str
    questions: int
    estimate: Estimate
    target: float | None = None


@dataclass(slots=True)
class RankingRecorder:
    """A Generator that keeps the hits, and the ranking of candidates from which its extractor selected the answer."""

    extractive: SentenceExtractor
    ranked: RankedCandidates = NOTHING
    hits: tuple[Hit, ...] = ()

    async def stream(self, prompt: Prompt) -> AsyncGenerator[str, None]:
        self.ranked, self.hits = await self.extractive.rank(prompt), prompt.hits
        for piece in self.extractive.write(self.ranked):
            yield piece


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    settings: Settings
    postgres: Postgres
    folder: Path
    pipeline: QueryPipeline
    recorder: RankingRecorder

    def ingest(self, collection: str, documents: Sequence[CorpusDocument]) -> None:
        write_documents(documents, self.folder / collection)
        job = build_sync(self.settings, self.postgres, [str(self.folder / collection)], collection)
        chunks = job.run(build_inline_runner(self.settings)).chunks["stored"]
        _progress(f"{collection}: {len(documents)} documents, {chunks} chunks")

    def read_text(self, collection: str, document: str) -> str:
        with self.postgres.connect() as connection:
            id = document_id(self.settings.tenant, collection, self.uri(collection, document))
            return Catalog(connection, self.settings.tenant).text(id)

    def uri(self, collection: str, document: str) -> str:
        return (self.folder / collection / file_name(document)).as_uri()

    async def ask_all(
        self, collection: str, questions: Sequence[Question], own_document: bool = False
    ) -> list[AnsweredQuestion]:
        """Asks the collection. With `own_document` each question searches only its own document."""
        answered = []
        for number, question in enumerate(questions, 1):
            answered.append(await self._ask(collection, question, own_document))
            if number % PROGRESS_STEP == 0:
                _progress(f"{collection}: {number} of {len(questions)} questions")
        return answered

    async def _ask(self, collection: str, question: Question, own_document: bool) -> AnsweredQuestion:
        uri = self.uri(collection, question.document)
        query = Query(
            text=question.text,
            tenant=self.settings.tenant,
            collection=collection,
            filters=Comparison(key="uri", type="eq", value=uri) if own_document else None,
        )
        self.recorder.ranked, self.recorder.hits = NOTHING, ()
        reply = await self.pipeline.answer(query)
        return AnsweredQuestion(question=question, reply=reply, ranked=self.recorder.ranked, hits=self.recorder.hits)

    def recalls(
        self, collection: str, answered: Sequence[AnsweredQuestion], targets: Sequence[float]
    ) -> Iterator[Figure]:
        """The recalls of the ranking, and of the answers. A refusal counts as an answer without sentences."""
        golds = [
            [self.is_gold(collection, answer.question, candidate) for candidate in answer.ranked.candidates]
            for answer in answered
        ]
        for k, target in zip(CUTS, targets, strict=True):
            hits = sum(sentence_recall(gold, k) for gold in golds)
            yield _share(f"{collection} sentence recall@{k}", int(hits), len(answered), target)
        count = sum(self.is_right(collection, answer) for answer in answered)
        yield _share(f"{collection} replies with a gold sentence", count, len(answered))
        selections = [self.recorder.extractive.select(answer.ranked) for answer in answered]
        yield _mean(f"{collection} sentences per reply", [len(selection) for selection in selections if selection])

    def kinds(self, collection: str, answered: Sequence[AnsweredQuestion]) -> Iterator[Figure]:
        """The shares of the three kinds of replies, and the share of the answers that are right."""
        answers = [answer for answer in answered if answer.kind == "answer"]
        yield from _kind_figures(collection, answered)
        right = sum(self.is_right(collection, answer) for answer in answers)
        yield _share(f"{collection} answers that are right", right, max(1, len(answers)))

    def is_right(self, collection: str, answered: AnsweredQuestion) -> bool:
        """True if one of the sentences that the reply quotes is gold."""
        selection = self.recorder.extractive.select(answered.ranked)
        return any(self.is_gold(collection, answered.question, candidate) for candidate in selection)

    def is_gold(self, collection: str, question: Question, candidate: Candidate) -> bool:
        passage = candidate.passage
        if passage.hit.origin.uri != self.uri(collection, question.document):
            return False
        start, end = passage.start + candidate.start, passage.start + candidate.end
        span = Span(document=question.document, start=start, end=end)
        contains_answer = any(answer in candidate.text for answer in question.answers)
        return contains_answer or candidate.text in question.gold or any(map(span.overlaps, question.spans))


def main() -> None:
    arguments = _arguments()
    _progress(heading())
    settings = load_settings(None, "default", arguments.set, environment={})
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        figures, latencies = asyncio.run(_measure(settings, Postgres.open(dsn), scratch, arguments))
    if arguments.json:
        properties = {
            "machine": describe_machine(),
            "command": command(),
            "pipeline_version": settings.pipeline_version,
        }
        print(json.dumps({**properties, "figures": list(map(asdict, figures)), "milliseconds": latencies}, indent=2))
    else:
        print(heading())
        _show(figures, latencies)


async def _measure(
    settings: Settings, postgres: Postgres, folder: Path, arguments: argparse.Namespace
) -> tuple[list[Figure], Mapping[str, Mapping[str, float]]]:
    corpus = CorpusReader(postgres)
    try:
        bench = build_bench(settings, postgres, folder, corpus)
        return await _figures(bench, arguments.data, build_sampler(arguments.questions))
    finally:
        await corpus.close()


def build_bench(settings: Settings, postgres: Postgres, folder: Path, corpus: CorpusReader) -> Bench:
    remote = RemoteModels()
    pipeline = build_pipeline(
        settings, corpus, build_retriever(settings, corpus, remote), InMemoryConversations(), remote
    )
    if not isinstance(pipeline.generator, SentenceExtractor):
        raise SystemExit(f"generation.type must be extractive, got {settings.generation.type}")
    recorder = RankingRecorder(pipeline.generator)
    no_timeouts = AnswerLimits(depth=pipeline.limits.depth)  # else a busy machine would lose answers
    recording = replace(pipeline, generator=recorder, limits=no_timeouts)
    return Bench(settings=settings, postgres=postgres, folder=folder, pipeline=recording, recorder=recorder)


async def _figures(
    bench: Bench, data: Path, sample: Callable[[Sequence[Question]], list[Question]]
) -> tuple[list[Figure], Mapping[str, Mapping[str, float]]]:
    bench.ingest(XQUAD, list(read_corpus(data / XQUAD / "corpus.jsonl")))
    answerable = await bench.ask_all(XQUAD, sample(read_xquad_questions(data / XQUAD)))
    unanswerable = await bench.ask_all(XQUAD, sample(read_covidqa_questions(data / COVIDQA)))
    articles = list(read_corpus(data / COVIDQA / "documents.jsonl"))
    bench.ingest(COVIDQA, articles)
    covid = await bench.ask_all(
        COVIDQA, align_questions(bench, articles, sample(read_covidqa_questions(data / COVIDQA)))
    )
    bench.ingest(CLAPNQ, list(read_corpus(data / CLAPNQ / "items.jsonl")))
    clapnq = await bench.ask_all(CLAPNQ, sample(read_clapnq_questions(data / CLAPNQ)), own_document=True)
    lookalikes = generate_lookalikes()
    bench.ingest(LOOKALIKES, [lookalike.document for lookalike in lookalikes])
    alike = await bench.ask_all(LOOKALIKES, [lookalike_question(lookalike) for lookalike in lookalikes])
    wordy = [replace(answer.question, text=PREAMBLE + answer.question.text) for answer in answerable]
    lengthened = await bench.ask_all(XQUAD, wordy[: len(wordy) // 4])
    figures = [
        *bench.recalls(XQUAD, answerable, targets=(0.78, 0.92)),
        *bench.recalls(COVIDQA, covid, targets=(0.43, 0.56)),
        *_answer_figures(clapnq, bench.recorder.extractive),
        *bench.kinds(XQUAD, answerable),
        *bench.kinds(COVIDQA, covid),
        *_kind_figures(CLAPNQ, clapnq),
        *bench.kinds(LOOKALIKES, alike),
        *_unrelated_figures(answerable, unanswerable),
        *_length_figures([*answerable, *covid]),
        *_kind_figures(f"{XQUAD} after a preamble", lengthened),
    ]
    return figures, _latencies([*answerable, *covid])


def _answer_figures(answered: Sequence[AnsweredQuestion], extractive: SentenceExtractor) -> Iterator[Figure]:
    """The figures of the words. Except for `refusals as 0`, they are of an extractor that refuses no question."""
    never_refusing = replace(extractive, threshold=0.0)
    selections = [never_refusing.select(answer.ranked) for answer in answered]
    pairs = list(zip(selections, answered, strict=True))
    scores = [token_f1(_text(selection), answer.question.answers) for selection, answer in pairs]
    yield _mean(f"{CLAPNQ} token F1", scores, target=0.55)
    without_refusals = [
        0.0 if answer.kind == "refusal" else score for answer, score in zip(answered, scores, strict=True)
    ]
    yield _mean(f"{CLAPNQ} token F1, refusals as 0", without_refusals)
    agreements = [
        sentence_agreement({candidate.text for candidate in selection}, answer.question.gold)
        for selection, answer in pairs
    ]
    yield _mean(f"{CLAPNQ} sentence precision", [agreement.precision for agreement in agreements])
    yield _mean(f"{CLAPNQ} sentence recall", [agreement.recall for agreement in agreements])


def _text(selection: Sequence[Candidate]) -> str:
    return " ".join(candidate.text for candidate in selection)


def _mean(name: str, values: Sequence[float], target: float | None = None) -> Figure:
    (estimate,) = estimates(np.array([values], np.float64).T)
    return Figure(name=name, questions=len(values), estimate=estimate, target=target)


def _share(name: str, count: int, total: int, target: float | None = None) -> Figure:
    return Figure(name=name, questions=total, estimate=share_estimate(count, total), target=target)


def _kind_figures(name: str, answered: Sequence[AnsweredQuestion]) -> Iterator[Figure]:
    kinds = [answer.kind for answer in answered]
    for kind in KINDS.values():
        yield _share(f"{name}: {kind}", kinds.count(kind), len(kinds))


def _unrelated_figures(
    answerable: Sequence[AnsweredQuestion], unanswerable: Sequence[AnsweredQuestion]
) -> Iterator[Figure]:
    """How the questions of another collection are told from a collection's own."""
    positive, negative = ([answer.ranked.confidence for answer in answers] for answers in (answerable, unanswerable))
    questions = len(answerable) + len(unanswerable)
    area = auroc_estimate(positive, negative)
    yield Figure(name="AUROC of the confidence", questions=questions, estimate=area, target=0.89)
    yield from _kind_figures(f"{COVIDQA} asked of {XQUAD}", unanswerable)


def _length_figures(answered: Sequence[AnsweredQuestion]) -> Iterator[Figure]:
    """The refusals of answerable questions by the number of their words."""
    for shortest, longest in LENGTHS:
        kinds = [answer.kind for answer in answered if shortest <= len(answer.question.text.split()) <= longest]
        if kinds:
            yield _share(f"refused with {shortest} to {longest} words", kinds.count("refusal"), len(kinds))


def _latencies(answered: Sequence[AnsweredQuestion]) -> dict[str, dict[str, float]]:
    """The p50 and p95 of every stage, in milliseconds."""
    milliseconds: dict[str, list[float]] = {}
    for report in (report for answer in answered for report in answer.reply.stages if not report.skipped):
        milliseconds.setdefault(report.stage, []).append(1000 * report.seconds)
    return {
        stage: dict(zip(("p50", "p95"), np.percentile(values, [50, 95]).round(1).tolist(), strict=True))
        for stage, values in milliseconds.items()
    }


def read_xquad_questions(folder: Path) -> list[Question]:
    return [
        Question(
            text=question.text, document=_only_document(question), answers=tuple(map(_one_line, question.references))
        )
        for question in read_questions(folder)
    ]


def read_covidqa_questions(folder: Path) -> list[Question]:
    """The questions of covidqa_spans. Their spans are positions in the original texts."""
    return [
        Question(text=question.text, document=_only_document(question), spans=question.spans)
        for question in read_questions(folder)
    ]


def lookalike_question(lookalike: LookAlike) -> Question:
    return Question(text=lookalike.question, document=lookalike.document.id, answers=(lookalike.answer,))


def read_clapnq_questions(folder: Path, answerable: bool = True) -> list[Question]:
    """The questions that their passages answer, or do not. A sentence is gold if a reference was written from it."""
    sentences = {
        row["_id"]: frozenset(
            _one_line(text) for reference in row["references"] for text in reference["selected_sentences"]
        )
        for row in json_lines(folder / "items.jsonl")
    }
    return [
        Question(text=question.text, document=question.id, answers=question.references, gold=sentences[question.id])
        for question in read_questions(folder)
        if question.answerable is answerable
    ]


def align_questions(bench: Bench, articles: Sequence[CorpusDocument], questions: Sequence[Question]) -> list[Question]:
    """The questions with their spans moved from the original to the stored texts."""
    originals = {article.id: article.text for article in articles}
    stored = {article.id: bench.read_text(COVIDQA, article.id) for article in articles}
    return [
        replace(
            question,
            spans=tuple(align_spans(question.spans, originals[question.document], stored[question.document])),
        )
        for question in questions
    ]


def build_sampler(count: int | None) -> Callable[[Sequence[Question]], list[Question]]:
    """A function that draws `count` questions; all of them for None. It draws the same from the same questions."""
    if count is None:
        return list
    return lambda questions: [questions[index] for index in _draw_indexes(len(questions), count)]


def _draw_indexes(questions: int, count: int) -> list[int]:
    return np.random.default_rng(9).permutation(questions)[:count].tolist()


def _only_document(question: dataset_question.Question) -> str:
    (document,) = question.grades
    return document


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _show(figures: Sequence[Figure], latencies: Mapping[str, Mapping[str, float]]) -> None:
    print(f"{'':54} {'questions':>9} {'value':>7} {'95 % interval':>15}  target")
    for figure in figures:
        estimate, target = figure.estimate, f">= {figure.target:.2f}" if figure.target else ""
        interval = f"{estimate.low:.3f} to {estimate.high:.3f}"
        print(f"{figure.name:54} {figure.questions:9} {estimate.mean:7.3f} {interval:>15}  {target}".rstrip())
    for stage, milliseconds in latencies.items():
        print(f"{stage:54} p50 {milliseconds['p50']:.1f} ms, p95 {milliseconds['p95']:.1f} ms")


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help=f"the folder that contains {XQUAD}, {COVIDQA} and {CLAPNQ}")
    parser.add_argument("--questions", type=int, help="size of a sample of each dataset; default: all")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
