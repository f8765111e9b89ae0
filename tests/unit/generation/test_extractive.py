"""Sentences of scripted passages: which are chosen, how they are told, and when none is."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import pytest

from rag_core.errors import ModelError
from rag_core.generation.abstention import confidence
from rag_core.generation.candidates import candidates
from rag_core.generation.extractive import ENCODED, Extractive, Ranked
from rag_core.generation.question_type import question_type
from rag_core.stage import recording, stage
from rag_core.types import Chunk, Hit, Matrix, Origin, Passage, Prompt, Query, StageReport

KEYS = "Keys are secret. They are rotated every 90 days. The gate is red."
GATES = "The gate opens at noon. A watchman rotates the keys of the gate."


@dataclass(kw_only=True)
class ScriptedEncoder:
    """A text's cosine with the question, which comes first, is that of the first of these phrases in it; else 0."""

    cosines: Mapping[str, float] = field(default_factory=dict)
    error: Exception | None = None
    asked: list[Sequence[str]] = field(default_factory=list)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        self.asked.append(texts)
        if self.error:
            raise self.error
        known = [1.0, *(self._cosine(text) for text in texts[1:])]
        return np.array([[cosine, (1 - cosine**2) ** 0.5] for cosine in known], np.float32)

    def _cosine(self, text: str) -> float:
        return next((cosine for phrase, cosine in self.cosines.items() if phrase in text), 0.0)


async def equally_rare(query: Query) -> Mapping[str, float]:
    return dict.fromkeys(["key", "rotat", "gate", "often", "open", "red"], 2.0) if query.text else {}


def passage(n: int, text: str, score: float = 1.0, dense: float | None = 0.8) -> Passage:
    id = UUID(int=n)
    chunk = Chunk(id=id, document_id=id, ordinal=0, text=text, start=0, end=len(text))
    scores = {} if dense is None else {"dense": dense}
    hit = Hit(chunk=chunk, origin=Origin(uri=f"file:///{n}.md", title=""), score=score, scores=scores)
    return Passage(n=n, hit=hit, text=text, start=0, chunks=(chunk,))


def prompt(question: str, *passages: Passage) -> Prompt:
    hits = tuple(each.hit for each in passages)
    return Prompt(query=Query(text=question), passages=passages, hits=hits)


def extractive(encoder: ScriptedEncoder | None = None, sentences: int = 3, passages: int = 5) -> Extractive:
    return Extractive(
        encoder=encoder or ScriptedEncoder(),
        idf=equally_rare,
        sentences=sentences,
        passages=passages,
    )


def told(generator: Extractive, asked: Prompt) -> tuple[str, list[StageReport]]:
    async def streamed() -> str:
        async with stage("generate"):
            return "".join([piece async for piece in generator.stream(asked)])

    with recording() as reports:
        return asyncio.run(streamed()), reports


def answered(generator: Extractive, asked: Prompt) -> str:
    return told(generator, asked)[0]


def ranked(generator: Extractive, asked: Prompt) -> Ranked:
    return asyncio.run(generator.ranked(asked))


def texts(*passages: str) -> list[str]:
    return [candidate.text for candidate in candidates([passage(n, text) for n, text in enumerate(passages, 1)])]


def test_the_sentences_that_answer_are_told_verbatim_each_with_its_marker() -> None:
    text = answered(extractive(sentences=2), prompt("How often are keys rotated?", passage(1, KEYS), passage(2, GATES)))
    assert text == "Keys are secret. [1] They are rotated every 90 days. [1]"


def test_passages_follow_their_best_sentences_and_sentences_the_text() -> None:
    asked = prompt("Which keys rotate at the gate?", passage(1, KEYS, score=0.5), passage(2, GATES, score=0.9))
    assert answered(extractive(), asked) == (
        "The gate opens at noon. [2] A watchman rotates the keys of the gate. [2] They are rotated every 90 days. [1]"
    )


def test_a_document_brings_no_marker_of_its_own() -> None:
    asked = prompt("Are keys rotated?", passage(1, "Keys are rotated [2] by\n  the [[3]] watch."))
    assert answered(extractive(), asked) == "Keys are rotated (2) by the ((3)) watch. [1]"


def test_scores_are_those_of_the_formula() -> None:
    encoder = ScriptedEncoder(cosines={"rotated": 0.9, "secret": 0.3, "red": 0.3})
    found = ranked(extractive(encoder), prompt("How often are keys rotated?", passage(1, KEYS), passage(2, "A cat.")))
    # of often, key and rotat: .5 + 1/3 + .5 * 2/3 + .3, then .5 * 1/3 + 1/3 + .5 * 2/3, then .5 * 1/3 + .5 * 1/3
    assert [candidate.text for candidate in found.candidates] == [
        "They are rotated every 90 days.",
        "Keys are secret.",
        "The gate is red.",
        "A cat.",
    ]


def test_a_better_passage_and_what_the_question_asks_for_break_ties() -> None:
    better = prompt("Keys?", passage(1, "Keys here.", score=0.1), passage(2, "Keys there.", score=0.2))
    assert answered(extractive(sentences=1), better) == "Keys there. [2]"
    typed = prompt("How many keys?", passage(1, "The keys hang. The nine keys hang."))
    assert answered(extractive(sentences=1), typed) == "The nine keys hang. [1]"


def test_only_the_best_passages_are_read() -> None:
    few = [passage(n, f"Keys of kind {n}.", score=n) for n in range(1, 8)]
    found = ranked(extractive(passages=2), prompt("Which keys?", *few))
    assert [candidate.passage.n for candidate in found.candidates] == [7, 6]


def test_of_many_sentences_those_with_the_words_of_the_question_are_encoded() -> None:
    encoder = ScriptedEncoder()
    many = "".join(f"A dog barks {n} times. " for n in range(50)) + "The keys are red."
    found = ranked(extractive(encoder), prompt("Red keys?", passage(1, many)))
    assert len(found.candidates) == ENCODED == len(encoder.asked[0]) - 1
    assert found.candidates[0].text == "The keys are red."


def test_without_its_encoder_words_decide_and_the_loss_is_reported() -> None:
    broken = ScriptedEncoder(error=ModelError("the weights are gone"))
    text, reports = told(extractive(broken, sentences=1), prompt("Are keys rotated?", passage(1, GATES)))
    assert text == "A watchman rotates the keys of the gate. [1]"
    assert [(each.stage, each.parent, each.error) for each in reports] == [
        ("encode", "generate", "the weights are gone"),
        ("generate", "", ""),
    ]


def test_below_its_threshold_nothing_is_told_but_the_confidence() -> None:
    text, reports = told(extractive(), prompt("Who won the cup?", passage(1, KEYS, dense=0.1), passage(2, GATES)))
    assert text == ""
    assert reports[-1].figures == {"confidence": pytest.approx(0.05 + 0.7)} or reports[-1].figures["confidence"] < 0.6


def test_nothing_comes_of_nothing() -> None:
    assert answered(extractive(), prompt("Keys?")) == ""
    assert answered(extractive(), prompt("Keys?", passage(1, "---"))) == ""
    assert ranked(extractive(), prompt("", passage(1, KEYS))).confidence < 1.3
