"""The analysis of an evaluation's failed questions: which step lost each answer."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from jobs.gold_searches import GoldSearchTask, Target
from jobs.ingest import RunnerName
from jobs.question_runner import run_questions
from jobs.retrieval_traces import use_open_store
from jobs.stored_dataset import StoredDataset, document_id_from_uri, list_graded_uris, list_uris, read_stored_dataset
from rag_core.config import Settings
from rag_core.evaluation.answer_measures import MeasuredAnswer
from rag_core.evaluation.conversation_mode import ConversationMode
from rag_core.evaluation.dataset import Dataset, read_corpus
from rag_core.evaluation.gold import find_answer_spans, has_gold_passage
from rag_core.evaluation.gold_search import GoldSearch
from rag_core.evaluation.metrics import relevant_ids
from rag_core.evaluation.outcomes import Outcome, search_outcome
from rag_core.evaluation.question import Question
from rag_core.evaluation.spans import Span, align_spans
from rag_core.evaluation.stages import FINAL, TOP_RANKS, JudgedQuestion
from rag_core.evaluation.waterfall import Waterfall, build_waterfall
from rag_core.storage.catalog import Catalog
from rag_core.storage.postgres import Postgres


@dataclass(frozen=True, kw_only=True)
class FailureAnalysis:
    """What was evaluated. `own_documents`: each question was answered only from the documents graded for it.

    `mode` says how questions with a history were searched.
    """

    dataset: Dataset
    settings: Settings
    collection: str
    postgres: Postgres
    own_documents: bool = False
    mode: ConversationMode = ConversationMode.fused

    def run(
        self,
        judged: Sequence[JudgedQuestion],
        answers: Sequence[MeasuredAnswer],
        runner: RunnerName = RunnerName.auto,
        callers: int = 1,
    ) -> Waterfall:
        """Labels the failed answers or, if there are none, the failed searches. Searches again for failed questions."""
        outcomes = self.find_outcomes(judged, answers)
        targets = self.find_targets(judged, outcomes)
        questions = [outcome.question for outcome in outcomes if outcome.question.id in targets]
        task = GoldSearchTask(
            settings=use_open_store(self.settings, self.postgres),
            collection=self.collection,
            targets=targets,
            callers=callers,
        )
        searches: Iterable[GoldSearch] = run_questions(task, questions, runner) if questions else ()
        return build_waterfall(outcomes, {search.question: search for search in searches})

    def find_outcomes(self, judged: Sequence[JudgedQuestion], answers: Sequence[MeasuredAnswer]) -> list[Outcome]:
        """The outcomes of all questions that did not end with an error."""
        if not answers:
            return [search_outcome(question) for question in judged if not question.trace.error]
        return [self._answer_outcome(answer) for answer in answers if not answer.trace.error]

    def find_targets(self, judged: Sequence[JudgedQuestion], outcomes: Sequence[Outcome]) -> dict[str, Target]:
        """The relevant document that came furthest, for each failed question with a document that the store knows."""
        failed = [outcome for outcome in outcomes if outcome.is_failure]
        if not failed:
            return {}
        scope = (self.dataset, self.collection, self.postgres, self.settings.tenant)
        uris, stored = list_uris(*scope), read_stored_dataset((), *scope)
        own_uris = list_graded_uris(*scope) if self.own_documents else {}
        judged_by_question = {question.question.id: question for question in judged}
        targets = {}
        for outcome in failed:
            question = outcome.question
            judged_question = judged_by_question.get(question.id)
            document = _choose_document(question, judged_question, stored, uris)
            if document:
                rank = self._find_rank(document, judged_question)
                searched = outcome.answer.trace.searched if outcome.answer and rank is None else ""
                targets[question.id] = Target(
                    uri=uris[document],
                    words=self._find_stored_words(question, document, stored),
                    searched=searched or question.text,
                    uris=own_uris.get(question.id, ()),
                    rank=rank,
                )
        return targets

    def _find_rank(self, document: str, judged: JudgedQuestion | None) -> int | None:
        """The rank among the first hits if the search used the history of the question, else None."""
        if judged is None or not judged.question.history or self.mode == ConversationMode.raw:
            return None
        hits = judged.later_stages[FINAL][:TOP_RANKS]
        return hits.index(document) + 1 if document in hits else 0

    def _answer_outcome(self, answer: MeasuredAnswer) -> Outcome:
        question, id_from_uri = answer.question, partial(document_id_from_uri, self.dataset)
        texts = self._relevant_texts
        relevant = set(relevant_ids(question.grades))
        words = {id: texts[id][span.start : span.end] for id, span in find_answer_spans(question, texts).items()}
        passages = [(id_from_uri(passage.uri), passage.text) for passage in answer.trace.passages]
        return Outcome(
            question=question,
            reached=has_gold_passage(question, passages, words),
            answer=answer,
            cites_relevant=any(id_from_uri(cited.uri) in relevant for cited in answer.trace.citations),
        )

    @cached_property
    def _relevant_texts(self) -> dict[str, str]:
        """The original texts of the relevant documents; none of a folder of files, whose texts depend on the parser."""
        questions = (*self.dataset.questions, *self.dataset.asked)
        ids = {id for question in questions for id in relevant_ids(question.grades)}
        if self.dataset.corpus.is_dir():
            return {}
        return {document.id: document.text for document in read_corpus(self.dataset.corpus) if document.id in ids}

    def _find_stored_words(self, question: Question, document: str, stored: StoredDataset) -> str:
        """The words of the answer as the store has them, or as the dataset has them if they were not stored."""
        texts = self._relevant_texts
        span = find_answer_spans(question, texts).get(document)
        if span is None or document not in stored.documents:
            return ""
        with self.postgres.connect() as connection:
            stored_text = Catalog(connection, self.settings.tenant).text(stored.documents[document])
        return _align_words(span, texts[document], stored_text)


def _align_words(span: Span, original: str, stored: str) -> str:
    words = original[span.start : span.end]
    if words in stored:
        return words
    (aligned,) = align_spans([span], original, stored)
    return stored[aligned.start : aligned.end] or words


def _choose_document(
    question: Question, judged: JudgedQuestion | None, stored: StoredDataset, uris: Mapping[str, str]
) -> str:
    """The relevant document of the last ranking that has one, or any other that the store knows; empty without any."""
    relevant = relevant_ids(question.grades)
    rankings = reversed(judged.rankings.values()) if judged else ()
    ranked = [id for ranking in rankings for id in ranking if id in relevant]
    completed = [id for id in relevant if id in stored.documents]
    return next((id for id in (*ranked, *completed, *relevant) if id in uris), "")
