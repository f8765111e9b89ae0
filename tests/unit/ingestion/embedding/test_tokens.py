from pathlib import Path

import pytest

from rag_core.errors import ModelError
from rag_core.ingestion.embedding.model_files import model_folder
from rag_core.ingestion.embedding.tokens import ModelTokenizer, WordTokenizer


@pytest.fixture(scope="module")
def minilm() -> ModelTokenizer:
    return ModelTokenizer(model_folder("all-MiniLM-L6-v2"))


@pytest.mark.model
def test_lengths_are_neither_padded_nor_cut_and_hold_no_special_token(minilm: ModelTokenizer) -> None:
    assert minilm.lengths(["", "keys", "rotate the keys.", "keys " * 300]) == [0, 1, 4, 300]
    assert minilm.special_tokens == 2


@pytest.mark.model
def test_ends_are_code_points_of_the_text(minilm: ModelTokenizer) -> None:
    text = "Café 🎉 東京"
    assert [text[:end] for end in minilm.ends(text)] == ["Café", "Café 🎉", "Café 🎉 東", "Café 🎉 東京"]


def test_words_and_marks_are_the_tokens_of_the_hashing_embedder() -> None:
    tokenizer = WordTokenizer()
    assert tokenizer.lengths(["", "Rotate the keys!"]) == [0, 4]
    assert tokenizer.ends("Rotate the keys!") == [6, 10, 15, 16]
    assert tokenizer.special_tokens == 0


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        ModelTokenizer(tmp_path)
