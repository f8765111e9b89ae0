"""What the lexical index calls a term: words, stemmed by Snowball without the stop words of the text's language.

Scripts that are written without spaces become pairs of neighbouring characters (Lucene's CJKBigramFilter does the
same), whatever the language is said to be. Hangul too: its particles are written onto the words.
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
"""Terms of different versions do not meet: stored ones are written again when it changes."""

LONGEST = 64
"""Of a longer word its first characters are the term, which is made anew each time."""

CACHED = 500_000

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
"""Of Thai, Lao, Tibetan, Myanmar, Hangul, Khmer, kana and Han."""

INVISIBLE = re.compile("[\u00ad\u2060\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]")
"""Soft hyphens, joiners, byte order marks and variation selectors: a word is the same without them. A space of no width
is none of these: it ends a word."""

DOTLESS = frozenset({"az", "tr"})
"""Languages whose capital I is that of another letter than i."""


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a question, as some languages read it: their terms for it, and the languages whose stop word it is."""

    terms: tuple[str, ...]
    stopped: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """`counts` tells how often each term counts. `words` are told where several languages read them."""

    counts: Mapping[str, int]
    words: tuple[Word, ...]


def terms(text: str, language: str) -> list[str]:
    """In text order, repeated as they are. `language` is an ISO 639-1 code; of an unknown one the words stay whole."""
    return list(filter(None, _read(text, language)))


def read_question(text: str, languages: Sequence[str]) -> Question:
    """To documents of these languages.

    A question is too short to tell its language by, and may name what is written in another. So it is read in all of
    them: a word's stem in one language meets the documents of that language, and where two agree it counts once.
    """
    if len(languages) == 1:
        return Question(Counter(terms(text, languages[0])), ())
    readings = [list(_read(text, language)) for language in languages]
    counts: Counter[str] = Counter()
    for reading in readings:
        counts |= Counter(filter(None, reading))
    words = dict.fromkeys(zip(*readings, strict=True))
    return Question(dict(counts), tuple(_of_languages(word, languages) for word in words))


def _of_languages(terms: Sequence[str], languages: Sequence[str]) -> Word:
    stopped = [language for language, term in zip(languages, terms, strict=True) if not term]
    return Word(tuple(sorted({*terms} - {""})), tuple(stopped))


def _read(text: str, language: str) -> Iterable[str]:
    """As many terms, in whatever language: an empty one for each of its stop words."""
    stems = _stems(language if language in STEMMERS else "")
    text = _lowered(text, language)
    if not text.isascii() and SPACELESS.search(text):
        return _words_and_pairs(INVISIBLE.sub("", text), stems)
    return map(stems.__getitem__, text.translate(_CHARACTERS).split())


def _lowered(text: str, language: str) -> str:
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text).replace("İ", "i")  # two characters when Python lowers it
    if language in DOTLESS:
        text = text.replace("I", "ı")  # noqa: RUF001
    return text.lower()


class _Characters(dict[int, str]):
    """What each character of a lower-cased text is to its words: itself, nothing, or a space between them. Filled as
    characters are met; a regular expression takes five times as long to split a text."""

    def __missing__(self, code: int) -> str:
        self[code] = "" if INVISIBLE.match(chr(code)) else chr(code) if _in_word(code) else " "
        return self[code]


_CHARACTERS = _Characters()


class _Stems(dict[str, str]):
    """From a word to its term, which is empty for a stop word; filled as words are met that are not too long."""

    def __init__(self, language: str) -> None:
        self._stop_words = STOP_WORDS.get(language, frozenset[str]())
        self._stemmer = Stemmer.Stemmer(STEMMERS[language], 0) if language else None
        self._lock = Lock()  # a stemmer serves one thread at a time

    def __missing__(self, word: str) -> str:
        with self._lock:
            if len(word) > LONGEST:
                return self._term(word)
            if len(self) >= CACHED:
                self.clear()
            term = self[word] = sys.intern(self._term(word))
        return term

    def _term(self, word: str) -> str:
        if word in self._stop_words:
            return ""
        stem: str = self._stemmer.stemWord(word[:LONGEST]) if self._stemmer else word
        return stem[:LONGEST]


@cache
def _stems(language: str) -> _Stems:
    return _Stems(language)


def _words_and_pairs(text: str, stems: _Stems) -> Iterator[str]:
    for spaceless, word in _run().findall(text):
        if word:
            yield stems[word]
        elif len(spaceless) == 1:
            yield spaceless
        else:
            yield from (first + second for first, second in pairwise(spaceless))


@cache
def _run() -> re.Pattern[str]:
    """Two groups: a run of spaceless letters, or a word."""
    spaceless = (code for code in range(0xE00, 0x10000) if SPACELESS.match(chr(code)) and _written(chr(code)))
    words = filter(_in_word, range(0x20000))
    return re.compile(f"([{''.join(_ranges(spaceless))}\U00020000-\U0003ffff]+)|([{''.join(_ranges(words))}]+)")


def _in_word(code: int) -> bool:
    """Letters, digits, and the marks upon them, in scripts with spaces."""
    return code < 0x20000 and _written(chr(code)) and not SPACELESS.match(chr(code))


def _written(character: str) -> bool:
    return character.isalnum() or unicodedata.category(character).startswith("M")


def _ranges(codes: Iterable[int]) -> Iterator[str]:
    """As a character class of a regular expression has them; `codes` ascend."""
    first = last = -1
    for code in codes:
        if code != last + 1:
            if first >= 0:
                yield f"{chr(first)}-{chr(last)}"
            first = code
        last = code
    yield f"{chr(first)}-{chr(last)}"
