"""Entities of a text, found by rules: names, acronyms, quoted terms and identifiers. No model is needed."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations, islice

VERSION = 1
"""The version of the rules, which is part of the recipe. Increase it when a text yields other entities or relations."""

SAME_SENTENCE, SAME_CHUNK = 1.0, 0.2
"""The weight that a relation gains for each sentence with both entities, and the weight for being in one chunk."""

MAX_NAME_WORDS = 5
"""The most words of a name. More are a heading or a sentence."""

MAX_NAME_CHARS = 100
"""The most characters of a name. The index of names also has a size limit."""

MAX_CHUNK_ENTITIES = 40
"""The most entities of a chunk: the most frequent ones. A table can contain hundreds of names."""

MAX_FULLY_RELATED, MAX_NEAREST = 24, 5
"""Up to MAX_FULLY_RELATED entities of a chunk are all related with one another. If there are more, as in tables, each
is related with MAX_NEAREST others: those that share most sentences with it, the nearest first. So relations do not
grow with the square of the entities."""

_MARKS = "".join(filter(lambda sign: unicodedata.category(sign)[0] == "M", map(chr, range(0x300, 0x2100))))
"""Combining marks. They are not letters, but do not end a word."""
_WORD = re.compile(rf"\w(?:[\w{_MARKS}.&'’-]*[\w{_MARKS}])?")  # noqa: RUF001
_INITIAL = "[A-HJ-Z\u00c0-\u00de\u0391-\u03a9\u0410-\u042f]"
"""A capital letter, except for I, which is a word."""
_SENTENCE_END = re.compile(
    r"(?<=[.!?。！？])"  # noqa: RUF001
    rf"(?<!\b{_INITIAL}\.)(?<!\b(?:Dr|Mr|Ms|St|Mt|Lt)\.)(?<!\b(?:Mrs|Gen|Sen|Gov|Rev)\.)(?<!\b(?:Prof|Capt)\.)"
    r"\s+|\n+"
)
_QUOTED = re.compile(r"[\"“„«]([^\"“”„«»\n]{2,80})[\"”“»]|`([^`\n]{2,80})`")
_LINKS = frozenset({"of", "the", "for", "de", "du", "la", "von", "van", "der"})
"""Words in lower case that can be inside a name."""
_ENGLISH = (
    "a an and are as at be but by for from he her his how i if in is it its of on or our she so that the their then "
    "there these they this those to was we were what when where which while who why will with you your not no yes"
)
_ARTICLES = frozenset({"der", "die", "das", "ein", "eine", "und", "le", "la", "les", "un", "une", "el", "los", "las"})
"""Articles of other languages. If one is capitalized inside a sentence, it is part of a name, as in Los Angeles."""
_FUNCTION_WORDS = frozenset(_ENGLISH.split()) | _ARTICLES
"""Words that are not names by themselves."""


@dataclass(frozen=True, slots=True)
class Graph:
    """The entities of one text and their relations, all by normalized name.

    `counts` holds the number of mentions of each name, and `labels` its first spelling. `weights` holds the strengths
    of relations, by pairs of names in ascending order.
    """

    counts: Mapping[str, int]
    labels: Mapping[str, str]
    weights: Mapping[tuple[str, str], float]


def extract_graph(text: str) -> Graph:
    """Finds the entities of a text. An uncertain name counts if it is certain elsewhere in the text."""
    sentences = list(_split_labels(text))
    certain = {normalize_name(label) for labels in sentences for label, is_certain in labels if is_certain}
    accepted = [[label for label, _ in labels if normalize_name(label) in certain] for labels in sentences]
    mentions = [[normalize_name(label) for label in labels] for labels in accepted]
    counts = dict(Counter(chain.from_iterable(mentions)).most_common(MAX_CHUNK_ENTITIES))
    first_labels = {normalize_name(label): label for labels in reversed(accepted) for label in reversed(labels)}
    return Graph(counts, {name: first_labels[name] for name in counts}, _relation_weights(mentions, counts.keys()))


def list_names(text: str) -> tuple[str, ...]:
    """The entities of a text as they are first written, the most frequent ones first."""
    return tuple(extract_graph(text).labels.values())


def list_possible_names(text: str) -> list[str]:
    """The names of a text, including uncertain ones, in text order and with repetitions."""
    return [label for labels in _split_labels(text) for label, _ in labels]


@lru_cache(maxsize=1 << 14)
def normalize_name(label: str) -> str:
    """The form in which names are compared: words without case, genitive and punctuation, joined by spaces."""
    return " ".join(chain.from_iterable(map(_fold_word, _WORD.findall(unicodedata.normalize("NFC", label)))))


def question_phrases(question: str) -> list[str]:
    """Every sequence of at most MAX_NAME_WORDS words of the question, as a normalized name.

    Those that exist as entities in the collection are the question's entities. A single function word is left out,
    unless it is written as an acronym.
    """
    words = [
        (folded, folded not in _FUNCTION_WORDS or _is_acronym(word))
        for word in _WORD.findall(unicodedata.normalize("NFC", question))
        for folded in _fold_word(word)
    ]
    return sorted(
        {
            " ".join(folded for folded, _ in words[first : first + n])
            for n in range(1, MAX_NAME_WORDS + 1)
            for first in range(len(words) - n + 1)
            if n > 1 or words[first][1]
        }
    )


def _relation_weights(mentions: Sequence[Sequence[str]], names: Set[str]) -> dict[tuple[str, str], float]:
    """The weights of relations between `names`. `mentions` holds the names in each sentence, including others."""
    weights = dict.fromkeys(combinations(sorted(names), 2), SAME_CHUNK)
    for sentence in mentions:
        for pair in combinations(sorted(names & set(sentence)), 2):
            weights[pair] += SAME_SENTENCE
    if len(names) <= MAX_FULLY_RELATED:
        return weights
    positions = {name: position for position, name in enumerate(dict.fromkeys(chain.from_iterable(mentions)))}
    ranked = sorted(weights, key=lambda pair: (-weights[pair], abs(positions[pair[0]] - positions[pair[1]]), pair))
    selected = {pair for name in names for pair in islice((pair for pair in ranked if name in pair), MAX_NEAREST)}
    return {pair: weight for pair, weight in weights.items() if pair in selected}


def _fold_word(word: str) -> list[str]:
    """The word without case and genitive. There are several if one of its characters expands to several words."""
    folded = unicodedata.normalize("NFKC", word).casefold().replace("’", "'")  # noqa: RUF001
    return [part.removesuffix("'s") for part in _WORD.findall(folded)]


def _split_labels(text: str) -> Iterator[list[tuple[str, bool]]]:
    """Yields the possible names of each sentence that are not too long, as `_find_labels` finds them."""
    for sentence in _SENTENCE_END.split(unicodedata.normalize("NFC", text)):
        yield [
            (label, is_certain)
            for label, is_certain in _find_labels(sentence)
            if len(label) <= MAX_NAME_CHARS and 0 < len(normalize_name(label)) <= MAX_NAME_CHARS
        ]


def _find_labels(sentence: str) -> Iterator[tuple[str, bool]]:
    """Yields each possible name as it is written, and True if it is certainly a name.

    A single capitalized word at the beginning of the sentence is uncertain.
    """
    for match in _QUOTED.finditer(sentence):
        quoted = match[1] or match[2]
        if 0 < len(_WORD.findall(quoted)) <= MAX_NAME_WORDS:
            yield quoted.strip(), True
    words = list(_WORD.finditer(sentence))
    yield from ((word[0], True) for word in words if _is_identifier(word[0]) and not word[0][0].isupper())
    for run in filter(None, _find_name_runs(sentence, words)):
        label = sentence[run[0].start() : run[-1].end()]
        if len(run) <= MAX_NAME_WORDS and len(label) > 1:
            is_first_word = len(run) == 1 and run[0] is words[0]
            yield label, not is_first_word or _is_identifier(label) or _is_acronym(label)


def _find_name_runs(sentence: str, words: Sequence[re.Match[str]]) -> Iterator[list[re.Match[str]]]:
    """Yields adjacent capitalized words, without function words at both ends. A run can be empty."""
    run: list[re.Match[str]] = []
    for word in words:
        if run and not _continues_name(sentence[run[-1].end() : word.start()], word[0]):
            yield _trim_run(run, sentence)
            run = []
        if run or word[0][0].isupper():
            run.append(word)
    yield _trim_run(run, sentence)


def _trim_run(run: list[re.Match[str]], sentence: str) -> list[re.Match[str]]:
    while run and run[-1][0].casefold() in _FUNCTION_WORDS | _LINKS and not _stands_out(run[-1][0], sentence):
        run = run[:-1]
    while run and run[0][0].casefold() in _FUNCTION_WORDS and not _begins_name(run[0], sentence):
        run = run[1:]
    return run


def _begins_name(word: re.Match[str], sentence: str) -> bool:
    """True if a function word is part of a name: it is an acronym, or an article capitalized inside the sentence."""
    before = sentence[: word.start()].rstrip()[-1:]
    is_inside = before.isalnum() or before == ","
    return _stands_out(word[0], sentence) or (is_inside and word[0].casefold() in _ARTICLES)


def _stands_out(word: str, sentence: str) -> bool:
    return _is_acronym(word) and not sentence.isupper()


def _continues_name(gap: str, word: str) -> bool:
    """True if the word continues the name before the gap.

    A full stop in the gap belongs to an abbreviation, because sentences are already split. If a function word follows,
    it is the end of a sentence after all.
    """
    is_adjacent = gap == " " or (gap == ". " and word.casefold() not in _FUNCTION_WORDS)
    return is_adjacent and (word[0].isupper() or word[0].isdigit() or word in _LINKS)


def _is_acronym(word: str) -> bool:
    return len(word) > 1 and word.isupper()


def _is_identifier(word: str) -> bool:
    """True for words such as `max_tokens`, `bge-m3` and `halfVec`."""
    has_inner_capital = word[1:] != word[1:].lower() and not word.isupper() and "-" not in word
    return word[0].isalpha() and ("_" in word or has_inner_capital or any(letter.isdigit() for letter in word))
