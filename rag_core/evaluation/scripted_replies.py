"""The replies to scripted turns, reduced to what is measured and kept."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rag_core.evaluation.answers import contains_reference
from rag_core.evaluation.scripted_conversations import ScriptedTurn
from rag_core.text.sentences import sentence_spans
from rag_core.types import Finish, Reply

ANSWERED: frozenset[Finish] = frozenset({"stop", "passages", "cut", "repeated"})
"""The outcomes with an answer; a `repeated` one is an answer with the note that an earlier one said so."""
_MARKS = re.compile(r"\[\d+\]|[“”]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptedReply:
    """A reply, or the error that its question failed with.

    `documents` are those that the answer cites, by path, in the order of its markers; `titles` are theirs. `searched`
    holds the texts that were searched.
    """

    answer: str = ""
    finish: Finish = "stop"
    documents: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()
    searched: tuple[str, ...] = ()
    seconds: float = 0.0
    error: str = ""

    @property
    def is_answer(self) -> bool:
        return not self.error and self.finish in ANSWERED

    @property
    def text(self) -> str:
        """The answer without markers and quotation marks, and without the line that introduces quoted passages."""
        answer = self.answer.partition("\n\n")[2] if self.finish == "passages" else self.answer
        return _MARKS.sub("", answer)

    @property
    def sentences(self) -> frozenset[str]:
        """The sentences of the text, without spaces and full stops around them."""
        text = self.text
        return frozenset(filter(None, (text[start:end].strip(" .\n") for start, end in sentence_spans(text))))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredTurn:
    """The reply to a turn of a conversation. `position` counts from 1.

    `alone` is the reply to the same question without history; None for turns that expect no answer.
    """

    conversation: str
    position: int
    turn: ScriptedTurn
    reply: ScriptedReply
    alone: ScriptedReply | None = None

    @property
    def cites_right(self) -> bool:
        return cites_expected(self.turn, self.reply)

    @property
    def has_facts(self) -> bool:
        return has_facts(self.turn, self.reply)


def reduce_reply(reply: Reply, path_from_uri: Callable[[str], str]) -> ScriptedReply:
    """The reply with its citations in the order of their first markers."""
    cited = sorted(reply.answer.citations, key=lambda citation: citation.spans[:1])
    variants = reply.understanding.variants if reply.understanding else ()
    return ScriptedReply(
        answer=reply.answer.text,
        finish=reply.answer.finish,
        documents=tuple(dict.fromkeys(path_from_uri(citation.uri) for citation in cited)),
        titles=tuple(dict.fromkeys(citation.title for citation in cited)),
        searched=tuple(dict.fromkeys((reply.standalone, *(variant.text for variant in variants)))),
        seconds=reply.seconds,
    )


def cites_expected(turn: ScriptedTurn, reply: ScriptedReply) -> bool:
    """True if the answer cites a document that the turn expects."""
    return reply.is_answer and bool(set(turn.documents) & set(reply.documents))


def has_facts(turn: ScriptedTurn, reply: ScriptedReply) -> bool:
    """True if the answer also contains each text that the turn expects; case and punctuation make no difference."""
    return cites_expected(turn, reply) and all(contains_reference(reply.text, [fact]) for fact in turn.facts)


def is_met(turn: MeasuredTurn, earlier: Sequence[MeasuredTurn]) -> bool:
    """True if the reply is of the kind that the turn expects. `earlier` are the turns before it.

    `repeated` is also met by an answer without a sentence of an earlier answer. `answer` is not met by an answer that
    only notes the repetition.
    """
    reply, expect = turn.reply, turn.turn.expect
    if reply.error or reply.finish == expect:
        return not reply.error
    is_new = not any(reply.sentences & before.reply.sentences for before in earlier)
    return reply.is_answer and reply.finish != "repeated" and (expect == "answer" or (expect == "repeated" and is_new))


def is_repetition(turn: MeasuredTurn, earlier: Sequence[MeasuredTurn]) -> bool:
    """True if the reply notes that it is one, or if one earlier answer has all its sentences."""
    sentences = turn.reply.sentences
    return turn.reply.is_answer and (
        turn.reply.finish == "repeated" or any(sentences <= before.reply.sentences for before in earlier)
    )


def name_failure(turn: MeasuredTurn) -> str:
    """The reason why a turn that expects an answer has no right one; empty if it has."""
    reply = turn.reply
    if reply.error:
        return "error"
    if not reply.is_answer:
        return reply.finish
    if not turn.cites_right:
        return "wrong document"
    return "" if turn.has_facts else "fact missing"
