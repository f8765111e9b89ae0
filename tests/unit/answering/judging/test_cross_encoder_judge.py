import asyncio
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from fakes.answering import passage
from fakes.judging import cite_markers

from rag_core.answering.judging.cross_encoder import CrossEncoderJudge, load_classifier, shared_classifier
from rag_core.answering.judging.verdicts import Thresholds
from rag_core.errors import ConfigError, ModelError
from rag_core.types import Answer, Passage, Verdict

PASSAGES = [passage(1, "rotate the keys weekly"), passage(2, "Doors are of oak"), passage(3, "the key of a house")]
ANSWER = cite_markers("Keys rotate weekly [1]. Doors are of oak [2][3].")
CLASSES = ("contradiction", "entailment", "neutral")


@pytest.fixture(scope="module")
def of_one(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.bert_files(tmp_path_factory.mktemp("one"), "ForSequenceClassification")


@pytest.fixture(scope="module")
def of_three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.bert_files(tmp_path_factory.mktemp("three"), "ForSequenceClassification", names=CLASSES)


def judge_answer(
    folder: Path, answer: Answer = ANSWER, passages: list[Passage] = PASSAGES, weights: torch.dtype = torch.float32
) -> Verdict:
    thresholds = Thresholds(supported=0.5, partial=0.3)
    judge = CrossEncoderJudge(
        shared_classifier(lambda: load_classifier(folder, weights, "cpu", "Entailment"), 2), thresholds
    )
    return asyncio.run(judge.judge(answer, passages))


def logits(folder: Path, premise: str, claim: str) -> np.ndarray:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    with torch.inference_mode():
        model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        read = AutoTokenizer.from_pretrained(folder)([premise], [claim], return_tensors="pt")
        return model(**read).logits[0].double().numpy()


def test_the_sigmoid_of_one_label_with_the_passage_first_and_the_best_of_those_that_are_cited(of_one: Path) -> None:
    def probability(passage: Passage, claim: str) -> float:
        return float(1 / (1 + np.exp(-logits(of_one, passage.text, claim)[0])))

    first, *others = PASSAGES
    expected = [
        probability(first, "Keys rotate weekly"),
        max(probability(text, "Doors are of oak") for text in others),
    ]
    verdict = judge_answer(of_one)
    assert [claim.score for claim in verdict.claims] == pytest.approx(expected, abs=1e-5)
    assert verdict.score == pytest.approx(np.mean(expected), abs=1e-5)
    assert verdict.method == "cross-encoder"


def test_a_passage_is_read_below_the_headings_of_its_first_chunk(of_one: Path) -> None:
    plain = PASSAGES[0]
    headed = replace(plain, chunks=(replace(plain.chunks[0], prefix="a house"), *plain.chunks))
    (claim,) = judge_answer(of_one, cite_markers("Keys rotate weekly [1]."), [headed]).claims
    expected = 1 / (1 + np.exp(-logits(of_one, "a house\nrotate the keys weekly", "Keys rotate weekly")[0]))
    assert claim.score == pytest.approx(expected, abs=1e-5)


def test_the_score_is_the_share_of_the_named_one_of_several_labels(of_three: Path) -> None:
    scores = logits(of_three, PASSAGES[0].text, "Keys rotate weekly")
    share = np.exp(scores[1]) / np.exp(scores).sum()
    assert judge_answer(of_three).claims[0].score == pytest.approx(share, abs=1e-5)


def test_a_label_that_the_model_has_not_is_refused_with_those_that_it_has(of_three: Path) -> None:
    with pytest.raises(ConfigError, match="must be one of contradiction, entailment, neutral, got consistent"):
        load_classifier(of_three, torch.float32, "cpu", "consistent")


def test_bf16_is_near_fp32(of_three: Path) -> None:
    halved = [claim.score for claim in judge_answer(of_three, weights=torch.bfloat16).claims]
    assert halved == pytest.approx([claim.score for claim in judge_answer(of_three).claims], abs=0.1)


def test_without_passages_every_claim_is_unsupported(of_one: Path) -> None:
    verdict = judge_answer(of_one, passages=[])
    assert {(claim.grade, claim.score) for claim in verdict.claims} == {("unsupported", 0.0)}


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded as a cross-encoder"):
        judge_answer(tmp_path)


def test_a_score_that_is_not_a_number_is_the_judges_failure(of_one: Path) -> None:
    loaded = load_classifier(of_one, torch.float32, "cpu", "")
    next(loaded.model.parameters()).data.fill_(torch.nan)
    judge = CrossEncoderJudge(shared_classifier(lambda: loaded, 2), Thresholds(supported=0.5, partial=0.3))
    with pytest.raises(ModelError, match="the judge returned a score that is not a finite number"):
        asyncio.run(judge.judge(ANSWER, PASSAGES))
