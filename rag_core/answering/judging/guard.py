"""The guard, which flags, blocks or rewrites an answer that its passages do not support."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rag_core.answering.judging.sentence_gate import SentenceGate
from rag_core.answering.judging.statements import has_words
from rag_core.answering.judging.verdicts import weigh_verdict
from rag_core.errors import GenerationError, JudgeError, StageTimeoutError, translate_foreign_errors
from rag_core.events import Event, Grounding, Listener, TextDelta, TextRetracted, grade_citations
from rag_core.protocols import Judge
from rag_core.stage import attempt, skip_stage
from rag_core.types import Answer, Prompt, Verdict

WriteAnswer: TypeAlias = Callable[[Prompt, Listener], Awaitable[Answer]]
"""Writes an answer, and emits its text and citations while it does."""

BLOCKED_ANSWER = "The answer was held back: its sources do not support all of it."
UNCHECKED_ANSWER = "The answer was held back: it could not be checked against its sources."


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """The check of an answer by a judge, and its consequences.

    `mode` is the treatment of an unsupported answer: `flag` keeps it, `block` replaces it by BLOCKED_ANSWER, and
    `regenerate` writes a second one, whose prompt names the unsupported sentences, and blocks that unless it passes.
    `stream` is the time of emission: `after` emits the text while it is written and judges it afterwards, `buffer`
    judges first, and `sentence` judges and emits one sentence at a time, so that `block` leaves out single sentences.
    `on_judge_error` is the treatment of an answer that the judge fails to judge; `block` replaces it by
    UNCHECKED_ANSWER. `timeout`, in seconds, is for one call of the judge. An answer whose confidence is lower than
    `confident` is never graded as supported. `notice` is the sentence before quoted passages, which is not judged.
    """

    judge: Judge
    mode: Literal["off", "flag", "block", "regenerate"]
    stream: Literal["after", "sentence", "buffer"]
    on_judge_error: Literal["allow_flagged", "block"]
    timeout: float
    confident: float = 0.0
    notice: str = ""

    async def answer(self, prompt: Prompt, write: WriteAnswer, emit: Listener) -> Answer:
        """Writes and judges an answer. An abstention is not judged."""
        if self.mode == "off":
            skip_stage("judge", "guard.mode is off")
            return await write(prompt, emit)
        match self.stream:
            case "after":
                return await self._answer_then_judge(prompt, write, emit)
            case "sentence":
                return await self._answer_by_sentence(prompt, write, emit)
            case "buffer":
                return await self._answer_buffered(prompt, write, emit)

    async def _answer_then_judge(self, prompt: Prompt, write: WriteAnswer, emit: Listener) -> Answer:
        answer = await self._judge_answer(await write(prompt, emit), prompt)
        passes, unsupported = self._passes(answer), _unsupported_sentences(answer)
        text = BLOCKED_ANSWER if answer.verdict.method else UNCHECKED_ANSWER
        if self.mode == "regenerate" and unsupported:
            await emit(TextRetracted("sentences were not supported by the sources"))
            second_prompt = replace(prompt, unsupported=unsupported)
            try:
                answer = await self._judge_answer(await write(second_prompt, emit), second_prompt)
            except (GenerationError, StageTimeoutError):  # the stage's report has the error
                answer = Answer(text="")
            is_supported = bool(answer.verdict.method) and not _unsupported_sentences(answer)
            passes = is_supported or answer.finish in ("abstained", "passages")
        if not passes:
            answer = Answer(text=text, finish="blocked", verdict=replace(answer.verdict, claims=()))
            await emit(TextRetracted("not supported by the sources" if text == BLOCKED_ANSWER else "not checked"))
            await emit(TextDelta(text))
        return await self._conclude(answer, emit)

    async def _answer_buffered(self, prompt: Prompt, write: WriteAnswer, emit: Listener) -> Answer:
        events: list[Event] = []

        async def buffer(event: Event) -> None:
            events.append(event)

        answer = await self._answer_then_judge(prompt, write, buffer)
        retractions = [index for index, event in enumerate(events) if isinstance(event, TextRetracted)]
        for event in events[max(retractions, default=-1) + 1 :]:
            await emit(event)
        return answer

    async def _answer_by_sentence(self, prompt: Prompt, write: WriteAnswer, emit: Listener) -> Answer:
        """Judges each sentence as it is written. After the judge fails, the following sentences are not judged."""
        failed = False

        async def judge(sentence: Answer) -> Answer:
            nonlocal failed
            if sentence.text.strip() == self.notice:
                return replace(sentence, finish="passages")
            if not failed:
                sentence = await self._judge_answer(sentence, prompt)
                failed = not sentence.verdict.method
            return sentence

        gate = SentenceGate(judge, self._passes, emit)
        written = await write(prompt, gate.receive)
        await gate.finish()
        coverage = gate.cited_share if gate.rejected else written.coverage
        answer = replace(gate.answer, confidence=written.confidence, coverage=coverage, finish=written.finish)
        if gate.rejected and not answer.text:
            text = UNCHECKED_ANSWER if failed else BLOCKED_ANSWER
            answer = replace(answer, text=text, finish="blocked")
            await emit(TextDelta(text))
        return await self._conclude(answer, emit)

    async def _conclude(self, answer: Answer, emit: Listener) -> Answer:
        answer = weigh_verdict(answer, self.confident)
        await emit(Grounding(answer.verdict))
        return answer

    async def _judge_answer(self, answer: Answer, prompt: Prompt) -> Answer:
        """Returns the answer with its verdict and graded citations; the verdict has no `method` if the judge fails."""
        if answer.finish == "abstained":
            skip_stage("judge", "there is no answer")
            return answer
        verdict = await attempt("judge", self._call_judge(answer, prompt), otherwise=Verdict(), timeout=self.timeout)
        return grade_citations(replace(answer, verdict=verdict))

    async def _call_judge(self, answer: Answer, prompt: Prompt) -> Verdict:
        """Turns foreign errors of the judge into JudgeError."""
        with translate_foreign_errors(JudgeError):
            return await self.judge.judge(answer, prompt.passages)

    def _passes(self, answer: Answer) -> bool:
        if self.mode == "flag" or answer.finish in ("abstained", "passages"):
            return True
        if not answer.verdict.method:
            return self.on_judge_error == "allow_flagged"
        return not _unsupported_sentences(answer)


def _unsupported_sentences(answer: Answer) -> tuple[str, ...]:
    """The texts of the unsupported claims; the whole answer if it has words but no claims, such as only headings."""
    if answer.verdict.method and not answer.verdict.claims and has_words(answer):
        return (answer.text.strip(),)
    claims = [claim for claim in answer.verdict.claims if claim.grade == "unsupported"]
    return tuple(answer.text[claim.start : claim.end] for claim in claims)
