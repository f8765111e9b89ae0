"""The check that an answer does not only repeat earlier answers of its conversation."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rag_core.answering.judging.guard import WriteAnswer
from rag_core.conversation.repetition import (
    ENTITY_OVERLAP,
    MIN_REPEATED_WORDS,
    RECENT_TURNS,
    asks_for_more,
    count_words,
    has_only_words,
    is_said,
    list_said_sentences,
    measure_overlap,
)
from rag_core.events import Listener, TextDelta
from rag_core.stage import skip_stage, stage
from rag_core.types import Answer, Message, Prompt

REPETITION_STAGE = "repetition"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepetitionCheck:
    """The consequences of repeating the last `turns` answers.

    A question that asks for more is answered without the sentences of these answers. If nothing else is found, the
    answer is given again, with the sentence `nothing_new` after it. An answer to another question that has only such
    sentences is followed by the sentence `repeated`: it can be right for both questions.

    An answer repeats earlier ones, too, if more than `overlap` of its entities and all of its words are theirs.
    """

    repeated: str
    nothing_new: str
    overlap: float = ENTITY_OVERLAP
    turns: int = RECENT_TURNS

    async def answer(
        self, question: str, prompt: Prompt, history: Sequence[Message], write: WriteAnswer, emit: Listener
    ) -> Answer:
        """Writes an answer to the question, which is in the user's words: that of the prompt can be another."""
        said = list_said_sentences(history, self.turns)
        if not said:
            skip_stage(REPETITION_STAGE, "no earlier answer")
            return await write(prompt, emit)
        wants_more = asks_for_more(question)
        answer = await write(replace(prompt, excluded=said) if wants_more else prompt, emit)
        if wants_more and answer.finish == "abstained":
            answer = await write(prompt, emit)
        if not await self._repeats(answer, history, said):
            return answer
        notice = f"\n\n{self.nothing_new if wants_more else self.repeated}"
        await emit(TextDelta(notice))
        return replace(answer, text=answer.text + notice, finish="repeated")

    async def _repeats(self, answer: Answer, history: Sequence[Message], said: Sequence[str]) -> bool:
        async with stage(REPETITION_STAGE) as running:
            overlap = measure_overlap(answer.text, history, self.turns)
            repeats_words = overlap > self.overlap and has_only_words(answer.text, said)
            is_repetition = is_said(answer.text, said) or repeats_words
            running.figures.update(overlap=overlap, repeated=is_repetition)
        is_complete = answer.finish in ("stop", "passages") and count_words(answer.text) >= MIN_REPEATED_WORDS
        return is_repetition and is_complete
