"""What is done with an answer that its passages do not support: it is flagged, blocked, or written once more."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from rag_core.answering.judging.sentence_gate import SentenceGate
from rag_core.answering.judging.statements import has_words
from rag_core.errors import GenerationError, JudgeError, RagError, StageTimeoutError
from rag_core.events import Event, Grounding, Listener, TextDelta, TextRetracted, grade_citations
from rag_core.protocols import Judge
from rag_core.stage import attempt, skip_stage
from rag_core.types import Answer, Prompt, Verdict

Write: TypeAlias = Callable[[Prompt, Listener], Awaitable[Answer]]
"""Writes an answer, and tells its text and citations while it does."""

BLOCKED = "The answer was held back: its sources do not support all of it."


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """`mode` says what follows on a claim that is unsupported, and `stream` what is told before that is known.

    `regenerate` writes once more, with the unsupported sentences named; what is still unsupported then is blocked.
    By sentence, those that are unsupported are left out where `mode` is `block`. `timeout`, in seconds, is a judging's.
    """

    judge: Judge
    mode: Literal["off", "flag", "block", "regenerate"]
    stream: Literal["after", "sentence", "buffer"]
    on_judge_error: Literal["allow_flagged", "block"]
    timeout: float

    async def answer(self, prompt: Prompt, write: Write, emit: Listener) -> Answer:
        """What `write` abstains from is not judged."""
        if self.mode == "off":
            skip_stage("judge", "guard.mode is off")
            return await write(prompt, emit)
        match self.stream:
            case "after":
                return await self._after(prompt, write, emit)
            case "sentence":
                return await self._by_sentence(prompt, write, emit)
            case "buffer":
                return await self._buffered(prompt, write, emit)

    async def _after(self, prompt: Prompt, write: Write, emit: Listener) -> Answer:
        answer = await self._judged(await write(prompt, emit), prompt)
        passes, unsupported = self._passes(answer), _unsupported(answer)
        if self.mode == "regenerate" and unsupported:
            await emit(TextRetracted("sentences were not supported by the sources"))
            answer = await self._again(replace(prompt, unsupported=unsupported), write, emit)
            passes = _is_sound(answer)
        if not passes:
            answer = Answer(text=BLOCKED, finish="blocked", verdict=replace(answer.verdict, claims=()))
            await emit(TextRetracted("not supported by the sources"))
            await emit(TextDelta(BLOCKED))
        await emit(Grounding(answer.verdict))
        return answer

    async def _again(self, prompt: Prompt, write: Write, emit: Listener) -> Answer:
        """Empty if it cannot be written once more; the stage says why."""
        try:
            return await self._judged(await write(prompt, emit), prompt)
        except (GenerationError, StageTimeoutError):
            return Answer(text="")

    async def _buffered(self, prompt: Prompt, write: Write, emit: Listener) -> Answer:
        held: list[Event] = []

        async def hold(event: Event) -> None:
            held.append(event)

        answer = await self._after(prompt, write, hold)
        retracted = [place for place, event in enumerate(held) if isinstance(event, TextRetracted)]
        for event in held[max(retracted, default=-1) + 1 :]:
            await emit(event)
        return answer

    async def _by_sentence(self, prompt: Prompt, write: Write, emit: Listener) -> Answer:
        """A judge that fails is not asked about the sentences that follow."""
        failed = False

        async def judged(sentence: Answer) -> Answer:
            nonlocal failed
            if not failed:
                sentence = await self._judged(sentence, prompt)
                failed = not sentence.verdict.method
            return sentence

        gate = SentenceGate(judged, self._passes, emit)
        written = await write(prompt, gate.listen)
        await gate.finish()
        confidence = gate.cited if gate.left_out else written.confidence
        answer = replace(gate.answer, confidence=confidence, finish=written.finish)
        if gate.left_out and not answer.text:
            answer = replace(answer, text=BLOCKED, finish="blocked")
            await emit(TextDelta(BLOCKED))
        await emit(Grounding(answer.verdict))
        return answer

    async def _judged(self, answer: Answer, prompt: Prompt) -> Answer:
        if answer.finish == "abstained":
            skip_stage("judge", "there is no answer")
            return answer
        verdict = await attempt("judge", self._verdict(answer, prompt), otherwise=Verdict(), timeout=self.timeout)
        return grade_citations(replace(answer, verdict=verdict))

    async def _verdict(self, answer: Answer, prompt: Prompt) -> Verdict:
        """JudgeError for an error that has no name in `rag_core.errors`."""
        try:
            return await self.judge.judge(answer, prompt.passages)
        except RagError:
            raise
        except Exception as error:  # what judges of anybody's own raise has no common root
            raise JudgeError(f"{type(error).__name__}: {error}") from error

    def _passes(self, answer: Answer) -> bool:
        if self.mode == "flag" or answer.finish == "abstained":
            return True
        if not answer.verdict.method:
            return self.on_judge_error == "allow_flagged"
        return not _unsupported(answer)


def _is_sound(answer: Answer) -> bool:
    """Of a second try: its judge has to say so."""
    return answer.finish == "abstained" or (bool(answer.verdict.method) and not _unsupported(answer))


def _unsupported(answer: Answer) -> tuple[str, ...]:
    """Its sentences that are; all of it if it has words, but nothing that can be judged: headings, code."""
    if answer.verdict.method and answer.verdict.grade == "unchecked" and has_words(answer):
        return (answer.text.strip(),)
    claims = [claim for claim in answer.verdict.claims if claim.grade == "unsupported"]
    return tuple(answer.text[claim.start : claim.end] for claim in claims)
