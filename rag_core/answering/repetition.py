"""The check that an answer does not only repeat earlier answers of its conversation."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rag_core.answering.judging.guard import WriteAnswer
from rag_core.conversation.repetition import (
    ENTITY_OVERLAP,
    MIN_REPEATED_WORDS,
    RECENT_TURNS,
    asks_for_more,
    can_repeat,
    count_words,
    has_only_words,
    is_asked_again,
    list_earlier_sentences,
    measure_overlap,
    normalize_sentence,
    repeats_sentences,
)
from rag_core.errors import GenerationError, StageTimeoutError
from rag_core.events import Event, Listener, TextDelta, TextRetracted, Usage
from rag_core.stage import skip_stage, stage
from rag_core.types import Answer, Message, Prompt

REPETITION_STAGE = "repetition"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionCheck:
    """The consequences of repeating the last `turns` answers.

    A question that asks for more is answered without the sentences of these answers. If nothing else is found, the
    answer is given again, with the sentence `nothing_new` after it. If `regenerate`, another question whose answer has
    only such sentences is answered again without them. Otherwise, and if it was asked before or no other answer is
    found, the sentence `repeated` follows the answer.

    An answer repeats earlier ones, too, if more than `overlap` of its entities and all of its words are theirs.
    """

    repeated: str
    nothing_new: str
    regenerate: bool = False
    overlap: float = ENTITY_OVERLAP
    turns: int = RECENT_TURNS

    async def answer(
        self, question: str, prompt: Prompt, history: Sequence[Message], write: WriteAnswer, emit: Listener
    ) -> Answer:
        """Writes an answer to the question, which is in the user's words: that of the prompt can be another."""
        earlier = list_earlier_sentences(history, self.turns)
        if not earlier:
            skip_stage(REPETITION_STAGE, "no earlier answer")
            return await write(prompt, emit)
        without_earlier = replace(prompt, excluded=earlier)
        if asks_for_more(question):
            answer = await write(without_earlier, emit)
            if answer.finish == "abstained":
                answer = await write(prompt, emit)
            is_repetition = await self._repeats(answer, history, earlier)
            return await _append(answer, self.nothing_new, emit) if is_repetition else answer
        gate = _HeldRepetition(frozenset(map(normalize_sentence, earlier)), emit)
        answer = await write(prompt, gate.receive)
        is_repetition = await self._repeats(answer, history, earlier)
        can_differ = self.regenerate and gate.is_holding and not is_asked_again(question, history)
        other = (
            await self._write_another(without_earlier, history, write, emit) if is_repetition and can_differ else None
        )
        if other:
            return other
        await gate.release()
        return await _append(answer, self.repeated, emit) if is_repetition else answer

    async def _write_another(
        self, prompt: Prompt, history: Sequence[Message], write: WriteAnswer, emit: Listener
    ) -> Answer | None:
        """Writes and emits an answer without the sentences that the prompt excludes; None if there is no other one."""
        events: list[Event] = []

        async def hold(event: Event) -> None:
            if isinstance(event, Usage):
                await emit(event)
            else:
                events.append(event)

        try:
            answer = await write(prompt, hold)
        except (GenerationError, StageTimeoutError):  # the stage's report has the error
            return None
        if answer.finish != "stop" or await self._repeats(answer, history, prompt.excluded):
            return None
        for event in events:
            await emit(event)
        return answer

    async def _repeats(self, answer: Answer, history: Sequence[Message], earlier: Sequence[str]) -> bool:
        async with stage(REPETITION_STAGE) as running:
            overlap = measure_overlap(answer.text, history, self.turns)
            repeats_words = overlap > self.overlap and has_only_words(answer.text, earlier)
            is_complete = answer.finish in ("stop", "passages") and count_words(answer.text) >= MIN_REPEATED_WORDS
            is_repetition = is_complete and (repeats_sentences(answer.text, earlier) or repeats_words)
            running.figures.update(overlap=overlap, repeated=is_repetition)
        return is_repetition


@dataclass(slots=True)
class _HeldRepetition:
    """A listener that holds events back while the text has only `known` sentences, which are normalized.

    So an answer that is written again was never emitted: formats that cannot retract a text need no case for it. Only
    its tokens are.
    """

    known: frozenset[str]
    emit: Listener
    is_holding: bool = True
    events: list[Event] = field(default_factory=list)
    text: str = ""

    async def receive(self, event: Event) -> None:
        if not self.is_holding or isinstance(event, Usage):
            await self.emit(event)
            return
        self.events.append(event)
        match event:
            case TextDelta(text):
                self.text += text
            case TextRetracted():
                self.text = ""
        if not can_repeat(self.text, self.known):
            await self.release()

    async def release(self) -> None:
        """Emits what was held back, and from now on everything at once."""
        self.is_holding = False
        events, self.events = self.events, []
        for event in events:
            await self.emit(event)


async def _append(answer: Answer, sentence: str, emit: Listener) -> Answer:
    paragraph = f"\n\n{sentence}"
    await emit(TextDelta(paragraph))
    return replace(answer, text=answer.text + paragraph, finish="repeated")
