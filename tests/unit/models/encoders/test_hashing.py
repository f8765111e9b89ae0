import numpy as np
import pytest

from rag_core.models.encoders.hashing import BATCH_SIZE, HashingEncoder, hashing_space


def test_every_row_has_length_1_also_without_words() -> None:
    rows = HashingEncoder(64).embed(["rotate the keys", "", "?!", "keys keys"])
    assert (rows.shape, rows.dtype) == ((4, 64), np.float32)
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1)
    assert rows[1].tolist() == rows[2].tolist() == [1.0] + [0.0] * 63


def test_no_texts_give_no_rows() -> None:
    assert HashingEncoder(64).embed([]).shape == (0, 64)


def test_many_texts_have_the_vectors_that_each_has_alone() -> None:
    texts = [f"key {number}" for number in range(BATCH_SIZE + 2)]
    encoder = HashingEncoder(64)
    assert (encoder.embed(texts) == [encoder.embed([text])[0] for text in texts]).all()


def test_texts_are_near_by_the_words_they_share_in_any_order_and_case() -> None:
    rows = HashingEncoder(4096).embed(["rotate the keys", "Keys: rotate the", "rotate the doors", "other words here"])
    assert rows[0] @ rows[1:].T == pytest.approx([1, 2 / 3, 0])


def test_a_repeated_word_weighs_one_plus_its_logarithm() -> None:
    row = HashingEncoder(4096).embed(["keys keys doors"])[0]
    assert sorted(abs(row[row != 0])) == pytest.approx([0.5086, 0.8610], abs=1e-4)


def test_questions_are_encoded_like_documents() -> None:
    encoder = HashingEncoder(64)
    assert (encoder.embed_questions(["a key"]) == encoder.embed(["a key"])).all()


def test_the_space_names_dimension_and_window() -> None:
    space = hashing_space(64, 512)
    assert (space.model, space.dimension, space.window) == ("hashing", 64, 512)
    assert space.fingerprint != hashing_space(32, 512).fingerprint
