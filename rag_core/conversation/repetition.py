"""Repetition in a conversation: questions that ask for more, and answers that say nothing new."""

import re
from collections.abc import Sequence

from rag_core.retrieval.query.continuation import CLARIFICATION
from rag_core.storage.graph.extraction import extract_graph, normalize_name
from rag_core.text.sentences import sentence_spans
from rag_core.types import Message

ENTITY_OVERLAP, RECENT_TURNS = 0.7, 3
"""The share of an answer's entities above which it repeats the last turns, and the number of these turns."""

MIN_REPEATED_WORDS = 5
"""A shorter answer, such as a yes, can be right for another question, too."""

_MARKER = re.compile(r"\[\^?\d+(?:[,;–-] ?\^?\d+)*\]")  # noqa: RUF001
_WORD = re.compile(r"\w+")
_MORE = re.compile(
    r"\b(?:what|who|whom|where|when|why|how|which|anything|anyone|anybody|something|someone|somebody|nothing|anywhere)"
    r" (?:\w+ )?else\b|\b(?:any|what|which|there|some|are|with|about) (?!the )(?:\w+ )?others?\b"
    r"|\bthe others\b|\banother\b(?! (?:name|term|word|way)\b)"
    r"|\b(?:tell|show|give|say|know|learn|explain|read|hear|see|find|list|name)\b(?: \w+)? more\b"
    r"|\b(?:any|anything|something|what|is there|are there) more\b(?! than)"
    r"|\bmore (?:about|on|details?|information|examples?|facts|reasons)\b"
    r"|\b(?:any|what|which|some|give|list|name|there) (?:me )?(?:additional|further)\b"
    r"|\b(?:besides|apart from) (?:that|this|these|those|it|them)\b"
    r"|\b(?:was|wer|wo|wann|wie|gibt es) (?:\w+ )?(?:noch|sonst)\b"
    r"|\b(?:sonst noch|außerdem|weitere[nrs]?|andere[nrs]?)\b"
    r"|\b(?:quoi|qui|d'|y a-t-il) ?autres?\b|\b(?:autres?|davantage|plus d['e])\b"
    r"|\b(?:qué|quién|algo|hay|alguna?) (?:\w+ )?(?:más|otr[oa]s?)\b|\botr[oa]s\b"
    "|还有|還有|其他|其它|另外|别的|別的",
    re.IGNORECASE,
)


def asks_for_more(question: str) -> bool:
    """True for a question such as "What else?", which earlier answers do not answer.

    The words are English, German, French, Spanish and Chinese.
    """
    return bool(_MORE.search(question))


def is_asked_again(question: str, history: Sequence[Message]) -> bool:
    """True if one of the user's messages has the same words."""
    questions = (message.text for message in history if message.role == "user")
    return normalize_sentence(question) in map(normalize_sentence, questions)


def list_earlier_sentences(history: Sequence[Message], turns: int = RECENT_TURNS) -> tuple[str, ...]:
    """The sentences of the last answers, each once and without markers; the answers that ask back have none."""
    answers = [message for message in history if message.role == "assistant"][-turns:]
    texts = (answer.text for answer in answers if answer.intent != CLARIFICATION)
    return tuple(dict.fromkeys(sentence for text in texts for sentence in split_sentences(text)))


def split_sentences(text: str) -> list[str]:
    """The sentences that have words, without markers."""
    plain = _MARKER.sub("", text)
    sentences = (" ".join(plain[start:end].split()) for start, end in sentence_spans(plain))
    return [sentence for sentence in sentences if _WORD.search(sentence)]


def normalize_sentence(sentence: str) -> str:
    """The words without case and punctuation, joined by spaces."""
    return " ".join(_WORD.findall(sentence.casefold()))


def repeats_sentences(text: str, earlier: Sequence[str]) -> bool:
    """True if each sentence of the text is one of the earlier ones."""
    known = set(map(normalize_sentence, earlier))
    return bool(known) and all(normalize_sentence(sentence) in known for sentence in split_sentences(text))


def can_repeat(beginning: str, known: frozenset[str]) -> bool:
    """True if the sentences are known ones, and the last one can still become one. The known ones are normalized."""
    *sentences, last = map(normalize_sentence, split_sentences(beginning) or [""])
    return known.issuperset(sentences) and any(sentence.startswith(last) for sentence in known)


def has_only_words(text: str, earlier: Sequence[str]) -> bool:
    """True if each word of the text is in one of the earlier sentences."""
    known = normalize_sentence(" ".join(earlier)).split()
    return {*normalize_sentence(_MARKER.sub("", text)).split()} <= {*known}


def count_words(text: str) -> int:
    return len(_WORD.findall(_MARKER.sub("", text)))


def measure_overlap(answer: str, history: Sequence[Message], turns: int = RECENT_TURNS) -> float:
    """The share of the answer's entities that the last turns mention; 0 without history or entities."""
    entities = extract_graph(_MARKER.sub("", answer)).counts.keys()
    mentioned = frozenset[str]().union(*map(_message_entities, history[-2 * turns :]))
    return len(entities & mentioned) / len(entities) if entities else 0.0


def _message_entities(message: Message) -> frozenset[str]:
    """The normalized names of a message, which are extracted from its text if it holds none."""
    return frozenset(map(normalize_name, message.entities) if message.entities else extract_graph(message.text).counts)
