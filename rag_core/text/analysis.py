"""The terms of the lexical index: words, stemmed by Snowball, without the stop words of the text's language.

Scripts without spaces become pairs of neighbouring characters, in any language, as in Lucene's CJKBigramFilter. So does
Hangul, whose particles are attached to the words.
"""

import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from threading import Lock

import Stemmer

from rag_core.text.stop_words import STOP_WORDS

VERSION = f"2/snowball-{Stemmer.version()}"
"""Terms of different versions do not match: when it changes, the stored terms are computed again."""

MAX_TERM_LENGTH = 64
"""The term of a longer word consists of its first characters. It is computed each time."""

MAX_CACHED_WORDS = 500_000

STEMMERS = {
    **{"ar": "arabic", "ca": "catalan", "cs": "czech", "da": "danish", "de": "german", "el": "greek", "en": "english"},
    **{"eo": "esperanto", "es": "spanish", "et": "estonian", "eu": "basque", "fa": "persian", "fi": "finnish"},
    **{"fr": "french", "ga": "irish", "hi": "hindi", "hu": "hungarian", "hy": "armenian", "id": "indonesian"},
    **{"it": "italian", "lt": "lithuanian", "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian"},
    **{"no": "norwegian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian"},
    **{"st": "sesotho", "sv": "swedish", "ta": "tamil", "tr": "turkish", "yi": "yiddish"},
}

SPACELESS = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of Thai, Lao, Tibetan, Myanmar, Hangul, Khmer, kana or Han."""

INVISIBLE = re.compile("[\u00ad\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")
"""Soft hyphens, joiners, byte order marks and variation selectors: a word is the same without them. The zero-width
space is not among them: it ends a word."""

DOTLESS_I_LANGUAGES = frozenset({"az", "tr"})
"""Languages in which I is the capital of dotless i, not of i."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a question in several languages: its terms in them, and the languages in which it is a stop word."""

    terms: tuple[str, ...]
    stop_word_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """`counts` holds how many times each term counts. `words` is empty if the question was read in one language."""

    counts: Mapping[str, int]
    words: tuple[Word, ...]


def terms(text: str, language: str) -> list[str]:
    """The terms in text order, with repetitions.

    `language` is an ISO 639-1 code. The words of an unknown language are not stemmed.
    """
    return list(filter(None, _read_terms(text, language)))


def analyze_question(text: str, languages: Sequence[str]) -> Question:
    """The terms of a question for documents in these languages.

    A question is too short to identify its language, and can contain words of other languages. So it is read in all of
    them: a word's stem in one language matches the documents in that language. A term that several languages share
    counts once.
    """
    if len(languages) == 1:
        return Question(Counter(terms(text, languages[0])), ())
    readings = [list(_read_terms(text, language)) for language in languages]
    counts: Counter[str] = Counter()
    for reading in readings:
        counts |= Counter(filter(None, reading))
    words = []
    for word in dict.fromkeys(zip(*readings, strict=True)):
        stop_word_in = tuple(language for language, term in zip(languages, word, strict=True) if not term)
        words.append(Word(tuple(sorted({*word} - {""})), stop_word_in))
    return Question(dict(counts), tuple(words))


def _read_terms(text: str, language: str) -> Iterable[str]:
    """The term of each word, empty for a stop word: so every language gives equally many."""
    stems = _stems(language if language in STEMMERS else "")
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("İ", "i")  # two characters when Python lowers it
    if language in DOTLESS_I_LANGUAGES:
        text = text.replace("I", "ı")  # noqa: RUF001
    text = text.lower()
    if not text.isascii() and SPACELESS.search(text):
        return _words_and_pairs(INVISIBLE.sub("", text), stems)
    return map(stems.__getitem__, text.translate(_CHARACTERS).split())


class _Characters(dict[int, str]):
    """The replacement of each character before a lower-case text is split: itself, nothing, or a space.

    Filled on demand. To split a text with a regular expression instead takes five times as long.
    """

    def __missing__(self, code: int) -> str:
        self[code] = "" if INVISIBLE.match(chr(code)) else chr(code) if _is_word_character(code) else " "
        return self[code]


_CHARACTERS = _Characters()


class _Stems(dict[str, str]):
    """The terms of words; the term of a stop word is empty. Filled on demand with words that are not too long."""

    def __init__(self, language: str) -> None:
        self._stop_words = STOP_WORDS.get(language, frozenset[str]())
        self._stemmer = Stemmer.Stemmer(STEMMERS[language], 0) if language else None
        self._lock = Lock()  # a stemmer serves one thread at a time

    def __missing__(self, word: str) -> str:
        with self._lock:
            if len(word) > MAX_TERM_LENGTH:
                return self._term(word)
            if len(self) >= MAX_CACHED_WORDS:
                self.clear()
            term = self[word] = sys.intern(self._term(word))
        return term

    def _term(self, word: str) -> str:
        if word in self._stop_words:
            return ""
        stem: str = self._stemmer.stemWord(word[:MAX_TERM_LENGTH]) if self._stemmer else word
        return stem[:MAX_TERM_LENGTH]


@cache
def _stems(language: str) -> _Stems:
    return _Stems(language)


def _words_and_pairs(text: str, stems: _Stems) -> Iterator[str]:
    for spaceless, word in _run_pattern().findall(text):
        if word:
            yield stems[word]
        elif len(spaceless) == 1:
            yield spaceless
        else:
            yield from (first + second for first, second in pairwise(spaceless))


@cache
def _run_pattern() -> re.Pattern[str]:
    """A pattern with two groups: a run of spaceless letters, or a word."""
    spaceless = (
        code for code in range(0xE00, 0x10000) if SPACELESS.match(chr(code)) and _is_alphanumeric_or_mark(chr(code))
    )
    words = filter(_is_word_character, range(0x20000))
    return re.compile(
        f"([{''.join(_character_ranges(spaceless))}\U00020000-\U0003ffff]+)|([{''.join(_character_ranges(words))}]+)"
    )


def _is_word_character(code: int) -> bool:
    """True for letters, digits and the marks on them, in scripts with spaces."""
    return code < 0x20000 and _is_alphanumeric_or_mark(chr(code)) and not SPACELESS.match(chr(code))


def _is_alphanumeric_or_mark(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _character_ranges(codes: Iterable[int]) -> Iterator[str]:
    """The ranges for a character class of a regular expression. `codes` must ascend."""
    first = last = -1
    for code in codes:
        if code != last + 1:
            if first >= 0:
                yield f"{chr(first)}-{chr(last)}"
            first = code
        last = code
    yield f"{chr(first)}-{chr(last)}"
