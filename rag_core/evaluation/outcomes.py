"""The outcome of a question, and the rules by which it is a failure.

Without an answer, a question fails if no relevant chunk is among its first 10 hits: no chunk with a part of the answer
if the answer's spans are known, else no chunk of a relevant document. With an answer, it fails if

    the answer is wrong         it contains none of the references, and its token F1 is below MIN_TOKEN_F1
    nothing relevant was read   the question has no references, and the prompt has no relevant passage, although the
                                question is not known to be unanswerable
    it is unsupported           the judge grades it `unsupported`, unless its measures contradict that
    it is miscited              the prompt has a relevant passage, but no citation is of a relevant document
    it is missing               the question is known to be answerable, and was refused
    it is superfluous           the question is known to be unanswerable, and was not refused
    it is misjudged             the judge failed, or its grade contradicts the measures

The measures contradict the grade `unsupported` if the answer is right and at least MIN_LEXICAL_SUPPORT of its words are
in the passages.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from rag_core.evaluation.answer_measures import ABSTENTION, JUDGE_SUPPORTED, MeasuredAnswer
from rag_core.evaluation.question import Question
from rag_core.evaluation.stages import FINAL, TOP_RANKS, JudgedQuestion

MIN_TOKEN_F1 = 0.2
"""The token F1 from which an answer counts as right although it does not contain a reference word for word.

With the references of another question, at most 1 % of the extractive generator's answers reach it (ClapNQ, MT-RAG UN
and XQuAD); with their own, 95 % do in ClapNQ.
"""

MIN_LEXICAL_SUPPORT = 0.8
"""The share of a right answer's words in the passages from which the grade `unsupported` is not believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one question.

    `reached` is True if a relevant passage was in the prompt or, if nothing was answered, a relevant chunk was among
    the first hits; None if no document has the answer. `cites_relevant` is True if a citation is of a relevant
    document.
    """

    question: Question
    reached: bool | None
    answer: MeasuredAnswer | None = None
    cites_relevant: bool = False

    @property
    def measures(self) -> Mapping[str, float]:
        return self.answer.measures if self.answer else {}

    @property
    def is_refused(self) -> bool:
        return self.answer is not None and self.answer.trace.is_refusal

    @property
    def is_right(self) -> bool | None:
        """None if there is nothing to compare with, or no answer."""
        if self.is_refused or "token_f1" not in self.measures:
            return None
        return is_right_answer(self.measures)

    @property
    def is_unsupported(self) -> bool:
        return self._is_graded_unsupported and not self.is_contradicted

    @property
    def is_contradicted(self) -> bool:
        """True if the measures contradict the judge."""
        is_lexical = self.measures.get("lexical_support", 0.0) >= MIN_LEXICAL_SUPPORT
        return self._is_graded_unsupported and self.is_right is True and is_lexical

    @property
    def is_miscited(self) -> bool:
        return self.answer is not None and not self.is_refused and self.reached is True and not self.cites_relevant

    @property
    def is_missing(self) -> bool:
        return self.question.answerable is True and self.measures.get(ABSTENTION) == 0

    @property
    def is_superfluous(self) -> bool:
        return self.question.answerable is False and self.measures.get(ABSTENTION) == 0

    @property
    def judge_failure(self) -> str:
        """The reason why the judge failed; empty if it did not."""
        return self.answer.failures.get(JUDGE_SUPPORTED, "") if self.answer else ""

    @property
    def is_failure(self) -> bool:
        return (
            self.is_right is False
            or (self.reached is False and not self.question.references)
            or (self.reached is False and self.answer is None)
            or self.is_unsupported
            or self.is_miscited
            or self.is_missing
            or self.is_superfluous
            or self.is_contradicted
            or self.judge_failure != ""
        )

    @property
    def _is_graded_unsupported(self) -> bool:
        return self.answer is not None and not self.is_refused and self.answer.trace.grade == "unsupported"


def is_right_answer(measures: Mapping[str, float]) -> bool:
    """True if the measures of an answer with references are those of a right one."""
    return measures["contains_reference"] == 1 or measures["token_f1"] >= MIN_TOKEN_F1


def search_outcome(judged: JudgedQuestion) -> Outcome:
    """The outcome of a question with a relevant document that was only searched."""
    if judged.answer.length:
        reached = any(chunk in judged.answer.by_chunk for chunk in judged.chunks.get(FINAL, ())[:TOP_RANKS])
    else:
        reached = any(judged.question.grades.get(id, 0) > 0 for id in judged.later_stages[FINAL][:TOP_RANKS])
    return Outcome(question=judged.question, reached=reached)
