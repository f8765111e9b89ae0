"""What every reranker promises."""

import asyncio
from pathlib import Path

import pytest
import tiny_models
from fakes.legs import ScriptedReranker

from rag_core.config import CrossEncoderReranker, LateInteractionReranker, LexicalReranker, RerankerSettings
from rag_core.models.endpoint import HttpPool
from rag_core.protocols import Reranker
from rag_core.wiring.reranking import build_reranker

QUESTION = "How do I rotate the keys?"
TEXTS = [
    "Rotate the keys weekly.",
    "Doors are of oak.",
    "",
    "The key of a house",
    "the " * 300 + "keys",
    "東京 🎉",
    "keys",
]


@pytest.fixture(scope="module", params=["cross_encoder", "late_interaction", "tokens", "lexical", "scripted"])
def reranker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reranker:
    if request.param == "scripted":
        return ScriptedReranker(word="e")
    return build_reranker(settings(request.param, tmp_path_factory.mktemp(request.param)), HttpPool())


def settings(name: str, folder: Path) -> RerankerSettings:
    if name == "lexical":
        return LexicalReranker(type="lexical")
    if name == "cross_encoder":
        model = tiny_models.bert_files(folder, "ForSequenceClassification")
        return CrossEncoderReranker(type="cross_encoder", model=str(model), precision="fp32", batch_size=2)
    model = tiny_models.bert_files(folder, "") if name == "tokens" else tiny_models.multi_vector_files(folder)
    return LateInteractionReranker(type="late_interaction", model=str(model), precision="fp32", batch_size=2)


def scores(reranker: Reranker, question: str, texts: list[str]) -> list[float]:
    return asyncio.run(reranker.score(question, texts))


def test_a_score_for_each_text_in_the_order_given(reranker: Reranker) -> None:
    text_scores = scores(reranker, QUESTION, TEXTS)
    assert len(text_scores) == len(TEXTS)
    assert len(set(text_scores)) > 3
    assert scores(reranker, QUESTION, TEXTS[::-1]) == pytest.approx(text_scores[::-1], abs=1e-4)


def test_no_texts_no_scores(reranker: Reranker) -> None:
    assert scores(reranker, QUESTION, []) == []


def test_an_empty_question_is_answered_too(reranker: Reranker) -> None:
    assert len(scores(reranker, "", ["keys", ""])) == 2


def test_equal_texts_have_equal_scores_at_every_position(reranker: Reranker) -> None:
    first, *_, last = scores(reranker, QUESTION, ["keys", *TEXTS, "keys"])
    assert first == pytest.approx(last, abs=1e-4)


def test_questions_asked_at_once_get_the_scores_that_they_get_alone(reranker: Reranker) -> None:
    questions = [QUESTION, "doors", "two keys and a house " * 20]

    async def score_together() -> list[list[float]]:
        return await asyncio.gather(*(reranker.score(question, TEXTS) for question in questions * 4))

    alone = [scores(reranker, question, TEXTS) for question in questions]
    for actual, expected in zip(asyncio.run(score_together()), alone * 4, strict=True):
        assert actual == pytest.approx(expected, abs=1e-4)
