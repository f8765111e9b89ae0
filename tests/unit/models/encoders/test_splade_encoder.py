"""SPLADE encoders, on models of random weights."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch

from rag_core.errors import ModelError
from rag_core.models.encoders.model_files import splade_fingerprint
from rag_core.models.encoders.splade import SpladeEncoder
from rag_core.types import TermWeights

TEXTS = ["doors are of oak", "", "how do i rotate the keys weekly", "keys", "xylophone", "two keys by night"]
LONG = " ".join(tiny_models.WORDS * 5)
TERMS = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *tiny_models.WORDS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.splade_files(tmp_path_factory.mktemp("splade"))


@pytest.fixture(scope="module")
def two_sided(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.two_sided_splade_files(tmp_path_factory.mktemp("two_sided"))


@pytest.fixture(scope="module")
def encoder(folder: Path) -> SpladeEncoder:
    return SpladeEncoder(folder, "fp32", batch_size=2)


def by_term(weights: TermWeights) -> dict[str, float]:
    assert len(set(weights.terms)) == len(weights.terms) == len(weights.weights)
    return dict(zip(weights.terms, weights.weights.tolist(), strict=True))


def test_weights_are_those_of_the_masked_language_model(encoder: SpladeEncoder, folder: Path) -> None:
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForMaskedLM.from_pretrained(folder).eval()
    for text, weights in zip(TEXTS, encoder.weigh(TEXTS), strict=True):
        with torch.inference_mode():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        expected = torch.log1p(torch.relu(logits)).max(dim=0).values  # Formal et al. 2021, equation 6
        terms = tokenizer.convert_ids_to_tokens(range(len(expected)))
        positive = {term: weight for term, weight in zip(terms, expected.tolist(), strict=True) if weight > 1e-4}
        assert by_term(weights) == pytest.approx(positive, rel=1e-3, abs=1e-4)
        assert 5 < len(weights) < len(TERMS)


def test_weights_are_positive_and_of_the_tokenizers_terms(encoder: SpladeEncoder) -> None:
    for weights in encoder.weigh(TEXTS):
        assert weights.weights.dtype == np.float32
        assert (weights.weights > 0).all()
        assert set(weights.terms) <= TERMS


def test_a_document_longer_than_the_window_has_the_highest_weights_of_its_pieces(encoder: SpladeEncoder) -> None:
    pieces = list(encoder._split_text(LONG))
    assert len(pieces) == -(-len(LONG.split()) // (tiny_models.WINDOW - 2))
    assert "".join(pieces) == LONG
    (weights,) = encoder.weigh([LONG])
    expected: dict[str, float] = {}
    for piece in encoder.weigh(pieces):
        expected = {term: max(expected.get(term, 0), by_term(piece).get(term, 0)) for term in {*expected, *piece.terms}}
    assert by_term(weights) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(
    "text",
    ["x" * 500, "東京" * 50, f"keys {'東京' * 50} keys", " " * 100, "\n".join("a" * 99)],
    ids=["one word", "no blanks", "few blanks", "only blanks", "lines"],
)
def test_pieces_are_the_text_and_fit_the_window(encoder: SpladeEncoder, text: str) -> None:
    pieces = list(encoder._split_text(text))
    assert "".join(pieces) == text
    assert all(len(encoder._token_ends(piece)) <= tiny_models.WINDOW - 2 for piece in pieces)


def test_no_texts_have_no_weights(encoder: SpladeEncoder) -> None:
    assert encoder.weigh([]) == encoder.weigh_questions([]) == []


def test_a_question_of_a_two_sided_model_has_the_weights_of_its_own_words(two_sided: Path) -> None:
    encoder = SpladeEncoder(two_sided, "fp32")
    question, document = encoder.weigh_questions(["the keys"])[0], encoder.weigh(["the keys"])[0]
    assert set(question.terms) == {"the", "keys"}
    assert len(document) > 5


def test_questions_are_weighed_in_many_threads_at_once(encoder: SpladeEncoder) -> None:
    expected = [by_term(encoder.weigh_questions([text])[0]) for text in TEXTS]
    with ThreadPoolExecutor(8) as threads:
        weighed = list(threads.map(lambda text: by_term(encoder.weigh_questions([text])[0]), TEXTS * 8))
    assert weighed == [pytest.approx(weights, rel=1e-5) for weights in expected * 8]


def test_bf16_is_nearly_as_good(encoder: SpladeEncoder, folder: Path) -> None:
    (exact,), (rough,) = encoder.weigh([TEXTS[2]]), SpladeEncoder(folder, "bf16").weigh([TEXTS[2]])
    expected = by_term(exact)
    for term, weight in by_term(rough).items():
        assert weight == pytest.approx(expected.get(term, 0), abs=0.1)


def test_other_models_keep_their_threads(encoder: SpladeEncoder) -> None:
    before = torch.get_num_threads()
    encoder.weigh(["keys"])
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("head", ["", "ForSequenceClassification"])
def test_a_model_that_is_not_splade_is_refused(tmp_path: Path, head: str) -> None:
    with pytest.raises(ModelError, match="is not a SPLADE model: give one with a masked language model"):
        SpladeEncoder(tiny_models.bert_files(tmp_path, head))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be loaded as a SPLADE model: give the folder of a SPLADE model"):
        SpladeEncoder(tmp_path)


def test_a_fingerprint_is_of_the_files_not_of_their_place(folder: Path, two_sided: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert splade_fingerprint(copy) == splade_fingerprint(folder) != splade_fingerprint(two_sided)
    (copy / "1_SpladePooling/config.json").write_text('{"pooling_strategy": "sum"}')
    assert splade_fingerprint(copy) != splade_fingerprint(folder)


def test_an_empty_folder_has_no_fingerprint(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="contains no weights"):
        splade_fingerprint(tmp_path)
