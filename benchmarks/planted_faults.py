"""Does the failure waterfall name the fault that is planted into a pipeline?

Each fault is planted alone into a hybrid retriever with a lexical reranker, an extractive generator and a lexical judge
over all documents of the dataset. Only questions that succeed without the fault are asked, and those that fail with it
count. A question is right if it gets the label of its fault; the labels were assigned before the first run.

    python -m benchmarks.planted_faults DATA/xquad_en --questions 200
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.machine import command, heading
from benchmarks.planted_parts import (
    DenyingJudge,
    FlippedFusion,
    GarbageModel,
    HalfLeg,
    InventingGenerator,
    LastPassageGenerator,
    MisquotingGenerator,
    RefusingGenerator,
    ReversedReranker,
    RuinousAnswerer,
)
from benchmarks.scratch import scratch_folder, server_in
from jobs.failure_analysis import FailureAnalysis
from jobs.gold_searches import GoldSearchTask
from jobs.machine import describe_machine
from jobs.question_answers import AnswerTask
from rag_core.answering.judging.llm import LlmJudge
from rag_core.answering.judging.verdicts import Thresholds
from rag_core.answering.pipeline import QueryPipeline
from rag_core.config import Settings
from rag_core.evaluation.answer_measures import measure_answer
from rag_core.evaluation.answers import share_estimate
from rag_core.evaluation.dataset import Dataset, file_name, read_corpus, read_dataset, write_documents
from rag_core.evaluation.failures import LABELS
from rag_core.evaluation.gold import find_answer_spans
from rag_core.evaluation.question import Question
from rag_core.evaluation.waterfall import build_waterfall
from rag_core.knowledge_base import KnowledgeBase
from rag_core.protocols import Answerer, Generator, Judge, Leg, Retriever
from rag_core.retrieval.hybrid import Hybrid
from rag_core.retrieval.reranked import Reranked
from rag_core.settings import load_settings, replace_sections
from rag_core.storage.catalog import Catalog
from rag_core.storage.postgres import Postgres
from rag_core.wiring.ingestion import build_inline_runner, build_sync
from rag_core.wiring.judging import build_local_judge
from rag_core.wiring.pipeline import build_packer

CORPUS, WORDS, CHUNKER = "corpus", "words.json", "benchmarks.planted_parts:CuttingChunker"
WHOLE, CUT = "whole", "cut"
"""The collections with whole documents, and with documents whose answers are cut."""

RERANK_DEPTH = 20
SETTINGS = (
    "retrieval.type=reranked",
    "retrieval.retriever={type: hybrid, retrievers: {dense: {type: dense}, bm25: {type: bm25}},"
    " fusion: {type: distribution, weights: {dense: 0.5, bm25: 0.5}}}",
    "retrieval.reranker={type: lexical}",
    f"retrieval.depth={RERANK_DEPTH}",
)
TINY_BUDGET = "packing={passages: 1, tokens: 64}"

PlantRetriever: TypeAlias = Callable[[Retriever], Retriever]
PlantPipeline: TypeAlias = Callable[[QueryPipeline], Answerer]


def keep(part: Any) -> Any:
    return part


@dataclass(frozen=True)
class Fault:
    name: str
    label: str
    plant_retriever: PlantRetriever = keep
    plant_pipeline: PlantPipeline = keep
    collection: str = WHOLE
    deletes_documents: bool = False


class PlantedKnowledge(KnowledgeBase):
    """A knowledge base with a fault, whose judge is that of the settings although its generator only quotes."""

    def __init__(self, settings: Settings, fault: Fault) -> None:
        super().__init__(settings)
        self._fault = fault

    @cached_property
    def _retriever(self) -> Retriever:
        return self._fault.plant_retriever(super()._retriever)

    @cached_property
    def _pipeline(self) -> Any:
        judge = build_local_judge(self._settings.guard.judge, self._settings.embedding)
        return self._fault.plant_pipeline(with_judge(judge, super()._pipeline))


def change_legs(change: Callable[[Leg], Leg], retriever: Retriever) -> Retriever:
    return change_hybrid(
        retriever, lambda hybrid: replace(hybrid, legs={name: change(leg) for name, leg in hybrid.legs.items()})
    )


def flip_fusion(retriever: Retriever) -> Retriever:
    return change_hybrid(retriever, lambda hybrid: replace(hybrid, fusion=FlippedFusion(hybrid.fusion)))


def change_hybrid(retriever: Retriever, change: Callable[[Hybrid], Hybrid]) -> Retriever:
    match retriever:
        case Reranked(retriever=Hybrid() as hybrid):
            return replace(retriever, retriever=change(hybrid))
    raise TypeError(f"the retriever must be a reranked hybrid, got {retriever}")


def reverse_reranker(retriever: Retriever) -> Retriever:
    match retriever:
        case Reranked():
            return replace(retriever, reranker=ReversedReranker(retriever.reranker))
    raise TypeError(f"the retriever must be reranked, got {retriever}")


def shrink_budget(pipeline: QueryPipeline) -> QueryPipeline:
    return replace(pipeline, pack=build_packer(load_settings(None, "default", [TINY_BUDGET], environment={})))


def with_generator(generator: Generator, pipeline: QueryPipeline) -> QueryPipeline:
    return replace(pipeline, generator=generator)


def with_judge(judge: Judge, pipeline: QueryPipeline) -> QueryPipeline:
    return replace(pipeline, guard=replace(pipeline.guard, judge=judge))


def cite_last_passage(pipeline: QueryPipeline) -> QueryPipeline:
    return replace(pipeline, generator=MisquotingGenerator(pipeline.generator))


GARBAGE_JUDGE = LlmJudge(GarbageModel(), Thresholds(supported=0.5, partial=0.3), concurrency=1)
FAULTS = [
    Fault("answer cut by the chunker", "span_lost", collection=CUT),
    Fault("question rewritten to another", "rewrite_error", plant_pipeline=RuinousAnswerer),
    Fault("pool capped at half of the chunks", "pool_miss", partial(change_legs, HalfLeg)),
    Fault("fusion flipped", "fusion_loss", flip_fusion),
    Fault("reranker reversed", "rerank_loss", reverse_reranker),
    Fault("prompt of 64 tokens", "budget_cut", plant_pipeline=shrink_budget),
    Fault("generator quotes the last passage", "unused_context", keep, partial(with_generator, LastPassageGenerator())),
    Fault("generator invents", "unsupported_claim", keep, partial(with_generator, InventingGenerator())),
    Fault("generator cites the last passage", "wrong_citation", keep, cite_last_passage),
    Fault("generator refuses", "over_abstain", keep, partial(with_generator, RefusingGenerator())),
    Fault("judge replies garbage", "judge_error", keep, partial(with_judge, GARBAGE_JUDGE)),
    Fault("judge supports nothing", "judge_error", keep, partial(with_judge, DenyingJudge())),
    Fault("relevant document deleted", "not_indexed", deletes_documents=True),
]
NO_FAULT = Fault("no fault", "")


@dataclass(frozen=True)
class Bench:
    dataset: Dataset
    settings: Settings
    postgres: Postgres

    folder: Path

    def ingest(self) -> None:
        """Stores the corpus twice: whole, and with a gap in each answer."""
        corpus = list(read_corpus(self.dataset.corpus))
        texts = {document.id: document.text for document in corpus}
        words: dict[str, list[str]] = {}
        for question in self.dataset.asked:
            for id, span in find_answer_spans(question, texts).items():
                words.setdefault(self.uri(id), []).append(texts[id][span.start : span.end])
        write_documents(corpus, self.folder / CORPUS)
        (self.folder / WORDS).write_text(json.dumps(words))
        cutting = {"type": "python", "object": CHUNKER, "arguments": {"path": str(self.folder / WORDS)}}
        cut_settings = replace_sections(self.settings, {"chunking": cutting}, "the fault")
        for collection, settings in ((WHOLE, self.settings), (CUT, cut_settings)):
            _progress(f"{collection}: {len(corpus)} documents")
            job = build_sync(settings, self.postgres, [str(self.folder / CORPUS)], collection)
            job.run(build_inline_runner(settings))

    def uri(self, id: str) -> str:
        return (self.folder / CORPUS / file_name(id)).as_uri()

    def run(self, fault: Fault, questions: Sequence[Question]) -> dict[str, str]:
        """The labels of the questions that fail; empty for those that succeed."""
        _progress(f"{fault.name}: {len(questions)} questions")
        if fault.deletes_documents:
            self._delete_relevant_documents(questions)
        analysis = FailureAnalysis(
            dataset=self.dataset, settings=self.settings, collection=fault.collection, postgres=self.postgres
        )
        answering = AnswerTask(settings=self.settings, collection=fault.collection)
        with PlantedKnowledge(self.settings, fault) as knowledge:
            answers = [measure_answer(question, answering.run(knowledge, question)) for question in questions]
            outcomes = analysis.find_outcomes([], answers)
            targets = analysis.find_targets([], outcomes)
            searching = GoldSearchTask(settings=self.settings, collection=fault.collection, targets=targets)
            failed = [outcome.question for outcome in outcomes if outcome.question.id in targets]
            searches = {question.id: searching.run(knowledge, question) for question in failed}
        return {outcome.question.id: "" for outcome in outcomes} | build_waterfall(outcomes, searches).labels

    def _delete_relevant_documents(self, questions: Sequence[Question]) -> None:
        relevant = {id for question in questions for id in question.grades}
        with self.postgres.connect() as connection:
            catalog = Catalog(connection, self.settings.tenant)
            ids = [catalog.document(WHOLE, self.uri(id))["id"] for id in relevant]
            catalog.drop_documents(WHOLE, ids)


@dataclass(frozen=True)
class Row:
    """The labels of the questions that fail with a fault."""

    fault: Fault
    asked: int
    labels: Mapping[str, int]

    @property
    def failed(self) -> int:
        return sum(self.labels.values())

    @property
    def right(self) -> int:
        return self.labels.get(self.fault.label, 0)


def measure(bench: Bench, questions: Sequence[Question]) -> Iterator[Row]:
    without_fault = bench.run(NO_FAULT, questions)
    fine = [question for question in questions if without_fault[question.id] == ""]
    for fault in FAULTS:
        labels = bench.run(fault, fine)
        yield Row(fault, len(fine), Counter(label for label in labels.values() if label))


def main() -> None:
    arguments = _arguments()
    dataset = read_dataset(arguments.dataset)
    order = np.random.default_rng(9).permutation(len(dataset.asked))[: arguments.questions]
    questions = [dataset.asked[index] for index in sorted(order.tolist())]
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        settings = load_settings(None, "default", [*SETTINGS, f"store.url={dsn}"], environment={})
        bench = Bench(replace(dataset, asked=tuple(questions)), settings, Postgres.open(dsn), scratch)
        bench.ingest()
        rows = list(measure(bench, questions))
    if arguments.json:
        faults = [
            {"fault": row.fault.name, "expected": row.fault.label, "asked": row.asked, "labels": row.labels}
            for row in rows
        ]
        print(json.dumps({"machine": describe_machine(), "command": command(), "faults": faults}, indent=2))
    else:
        print(heading())
        _show(rows, dataset.name, len(questions))


def _show(rows: Sequence[Row], name: str, questions: int) -> None:
    print(f"{name}: {rows[0].asked} of {questions} questions succeed without a fault")
    print(f"{'fault':36} {'expected':18} {'fail':>4} {'right':>6}  other labels")
    for row in rows:
        others = ", ".join(
            f"{row.labels[label]} {label}" for label in LABELS if row.labels.get(label) and label != row.fault.label
        )
        share = f"{row.right / row.failed:.1%}" if row.failed else "-"
        print(f"{row.fault.name:36} {row.fault.label:18} {row.failed:4} {share:>6}  {others}".rstrip())
    right, failed = sum(row.right for row in rows), sum(row.failed for row in rows)
    estimate = share_estimate(right, max(1, failed))
    print(f"right: {right} of {failed}, {estimate.mean:.1%} ({estimate.low:.1%} to {estimate.high:.1%}); target 95 %")


def _progress(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset", type=Path, help="a folder with questions, references and graded documents")
    parser.add_argument("--questions", type=int, default=200, help="size of the sample of questions")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
