"""Intents: kinds of messages, each with the words that show it, and with its own prompt or reply. They are data."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from rag_core.errors import ConfigError, validation_lines
from rag_core.retrieval.query.follow_up import guess_language, is_question
from rag_core.text.analysis import terms
from rag_core.text.stop_words import ALL_STOP_WORDS

SEARCH = "search"
"""The intent of every message that is not certainly of another one."""


class Intent(BaseModel):
    """One kind of message. The keys of `phrases`, `patterns` and `replies` are ISO 639-1 codes.

    `phrases` make up the whole message, besides function words; `patterns` are regular expressions that occur in it. A
    message that needs no sources gets the reply, or a language model's answer to the instructions of `system`. `prompt`
    names the prompt pack of an answer from sources.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str
    needs_sources: bool = True
    phrases: Mapping[str, tuple[str, ...]] = {}
    patterns: Mapping[str, tuple[str, ...]] = {}
    replies: Mapping[str, str] = {}
    system: str = ""
    prompt: str = ""

    @cached_property
    def spaced_phrases(self) -> tuple[str, ...]:
        """The phrases as words between spaces, the longest first."""
        spaced = (phrase for phrases in self.phrases.values() for phrase in _space_phrases(phrases))
        return tuple(sorted(spaced, key=len, reverse=True))

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches nothing if there are no patterns."""
        patterns = [pattern for listed in self.patterns.values() for pattern in listed]
        return re.compile("|".join(patterns) or r"(?!)", re.IGNORECASE)

    def reply(self, message: str) -> str:
        """The reply in the message's language, or else in English, or else the first one."""
        languages = (self._find_language(message), "en", *self.replies)
        return next((self.replies[language] for language in languages if language in self.replies), "")

    @model_validator(mode="after")
    def _check_replies(self) -> Self:
        if not self.needs_sources and not all([self.replies, *self.replies.values()]):
            raise ValueError("replies are required if needs_sources is false, and none can be empty")
        return self

    def _find_language(self, message: str) -> str:
        """The language that has the longest phrases of the message: "ok" is a phrase of several."""
        words = f" {' '.join(terms(message, ''))} "
        lengths = {
            language: max((len(phrase) for phrase in _space_phrases(phrases) if phrase in words), default=0)
            for language, phrases in self.phrases.items()
        }
        best = max(lengths, key=lambda language: lengths[language], default="")
        return best if best and lengths[best] else guess_language([message])


@dataclass(frozen=True, slots=True)
class Intents:
    """The intents by name. A message can only have an intent without sources if it asks nothing."""

    by_name: Mapping[str, Intent]

    def classify(self, message: str) -> str:
        """The name of the message's intent, by its words."""
        for name, intent in self.by_name.items():
            if intent.pattern.search(message):
                return self.check(name, message)
        words = terms(message, "")
        sourceless = {name: intent for name, intent in self.by_name.items() if not intent.needs_sources}
        remaining, name_found = f" {' '.join(words)} ", SEARCH
        for name, intent in sourceless.items():
            for phrase in intent.spaced_phrases:
                if phrase in remaining:
                    remaining, name_found = remaining.replace(phrase, " "), name
        return self.check(name_found, message) if all(word in ALL_STOP_WORDS for word in remaining.split()) else SEARCH

    def check(self, name: str, message: str) -> str:
        """The name; `search` if there is no such intent, or if it needs no sources but the message asks something."""
        intent = self.by_name.get(name)
        if intent is None or (not intent.needs_sources and is_question(message)):
            return SEARCH
        return name

    def get(self, name: str) -> Intent:
        return self.by_name.get(name) or self.by_name[SEARCH]


@cache
def load_intents(paths: Sequence[str] = ()) -> Intents:
    """The library's intents and those of YAML files, which replace intents with the same name.

    The name of an intent is that of its file. Raises ConfigError if a file cannot be read or is not valid.
    """
    folder = files("rag_core.retrieval.query").joinpath("intents")
    built_in = sorted((path for path in folder.iterdir() if path.name.endswith(".yaml")), key=lambda path: path.name)
    intents = {path.name.rpartition(".")[0]: _read_intent(path) for path in [*built_in, *map(Path, paths)]}
    if not intents[SEARCH].needs_sources:
        raise ConfigError(f"the intent {SEARCH} must have needs_sources: true, because questions have it by default")
    return Intents(intents)


def _space_phrases(phrases: Sequence[str]) -> list[str]:
    return [f" {' '.join(terms(phrase, ''))} " for phrase in phrases]


def _read_intent(path: Traversable) -> Intent:
    try:
        intent = Intent.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
        _ = intent.pattern
    except ValidationError as error:
        raise ConfigError(f"the intent {path} is not valid: {validation_lines(error)[0]}") from error
    except (OSError, ValueError, re.error, yaml.YAMLError) as error:
        raise ConfigError(f"the intent {path} cannot be read: {error}") from error
    return intent
