"""The outcome of one question that was asked: the reply, reduced to what is measured and kept."""

from dataclasses import dataclass

from rag_core.answering.judging.statements import find_statements
from rag_core.types import Finish, Grade, Reply

JUDGE = "judge"
REFUSALS: frozenset[Finish] = frozenset({"abstained", "blocked", "clarification"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedSentence:
    """A sentence of an answer, without its markers, and the quotes that it cites."""

    text: str
    quotes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CitedSource:
    uri: str
    quote: str
    start: int
    end: int
    grade: Grade


@dataclass(frozen=True, slots=True, kw_only=True)
class PassageText:
    """A passage that the generator read."""

    uri: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerTrace:
    """An answer, or the error that its question failed with.

    `judge_skipped` and `judge_error` are the reasons why there is no verdict. `calls` counts the generator's calls of a
    language model that reported their tokens. `searched` is the text that was searched.
    """

    question: str
    seconds: float
    error: str = ""
    answer: str = ""
    finish: Finish = "stop"
    confidence: float | None = None
    sentences: tuple[StatedSentence, ...] = ()
    citations: tuple[CitedSource, ...] = ()
    passages: tuple[PassageText, ...] = ()
    grade: Grade = "unchecked"
    score: float = 0.0
    judge_skipped: str = ""
    judge_error: str = ""
    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    searched: str = ""

    @property
    def is_refusal(self) -> bool:
        return self.finish in REFUSALS

    @property
    def words(self) -> str:
        """The text of the sentences, without markers and headings."""
        return " ".join(sentence.text for sentence in self.sentences)


def trace_reply(question: str, reply: Reply) -> AnswerTrace:
    answer, judging = reply.answer, [report for report in reply.stages if report.stage == JUDGE]
    is_refusal = answer.finish in REFUSALS
    sentences = [] if is_refusal else find_statements(answer, reply.passages)
    calls = [report.figures for report in reply.stages if "prompt_tokens" in report.figures]
    return AnswerTrace(
        question=question,
        seconds=reply.seconds,
        answer=answer.text,
        finish=answer.finish,
        confidence=answer.confidence,
        sentences=tuple(
            StatedSentence(text=sentence.text, quotes=tuple(citation.quote for citation in sentence.citations))
            for sentence in sentences
        ),
        citations=tuple(
            CitedSource(uri=cited.uri, quote=cited.quote, start=cited.start, end=cited.end, grade=cited.grade)
            for cited in answer.citations
        ),
        passages=tuple(PassageText(uri=passage.hit.origin.uri, text=passage.text) for passage in reply.passages),
        grade=answer.verdict.grade,
        score=answer.verdict.score,
        judge_skipped=next((report.skipped for report in judging if report.skipped), ""),
        judge_error=next((report.error for report in judging if report.error), ""),
        calls=len(calls),
        prompt_tokens=sum(int(figures["prompt_tokens"]) for figures in calls),
        completion_tokens=sum(int(figures.get("completion_tokens", 0)) for figures in calls),
        searched=reply.standalone,
    )
