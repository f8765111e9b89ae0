import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rag_core.errors import ModelError
from rag_core.models.encoders import tokens
from rag_core.models.encoders.model_files import find_model_folder
from rag_core.models.encoders.tokens import ModelTokenizer, WordTokenizer

PIECES = st.sampled_from([*" \t\n\r\v\x1c\x85\xa0\u2028\u200b\u0301\u03a3\u6771", "Key", "keys.", "[SEP]"])


@pytest.fixture(scope="module")
def minilm() -> ModelTokenizer:
    return ModelTokenizer(find_model_folder("all-MiniLM-L6-v2"))


@pytest.mark.model
def test_lengths_are_neither_padded_nor_cut_and_hold_no_special_token(minilm: ModelTokenizer) -> None:
    assert minilm.lengths(["", "keys", "rotate the keys.", "keys " * 300]) == [0, 1, 4, 300]
    assert minilm.special_tokens == 2


@pytest.mark.model
def test_ends_are_code_points_of_the_text(minilm: ModelTokenizer) -> None:
    text = "Café 🎉 東京"
    assert [text[:end] for end in minilm.ends(text)] == ["Café", "Café 🎉", "Café 🎉 東", "Café 🎉 東京"]


@pytest.mark.model
@given(text=st.lists(PIECES | st.characters(codec="utf-8"), max_size=20).map("".join))
def test_words_that_were_met_are_as_long_as_in_their_text(text: str, minilm: ModelTokenizer) -> None:
    assert minilm.lengths([text, text]) == [len(minilm.ends(text))] * 2


@pytest.mark.model
def test_few_words_are_remembered_and_no_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "_MAX_CACHED_WORDS", 2)
    tokenizer, long = ModelTokenizer(find_model_folder("all-MiniLM-L6-v2")), "unaffable" * 20
    text = f"one two three one {long} two"
    assert tokenizer.lengths([text]) == [len(tokenizer.ends(text))]
    assert tokenizer._word_lengths is not None
    assert 0 < len(tokenizer._word_lengths) <= 2
    assert long not in tokenizer._word_lengths


@pytest.mark.model
def test_a_token_with_a_space_in_it_is_found(minilm: ModelTokenizer, tmp_path: Path) -> None:
    tokenizer = json.loads((find_model_folder("all-MiniLM-L6-v2") / "tokenizer.json").read_text())
    tokenizer["added_tokens"].append(
        {**tokenizer["added_tokens"][0], "id": 30522, "content": "rotate the", "special": False}
    )
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert minilm.lengths(["rotate the keys"]) == [3]
    assert ModelTokenizer(tmp_path).lengths(["rotate the keys"]) == [2]


def test_words_and_marks_are_the_tokens_of_the_hashing_embedder() -> None:
    tokenizer = WordTokenizer()
    assert tokenizer.lengths(["", "Rotate the keys!"]) == [0, 4]
    assert tokenizer.ends("Rotate the keys!") == [6, 10, 15, 16]
    assert tokenizer.special_tokens == 0


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        ModelTokenizer(tmp_path)
