"""Corpora with the documents of other datasets."""

import json
from pathlib import Path

import pytest
from trees import write

from jobs.evaluate import collection_name
from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import Dataset, read_dataset
from rag_core.evaluation.fingerprints import hash_dataset
from rag_core.evaluation.padding import pad_dataset, read_padded_corpus
from rag_core.settings import load_settings

QUESTIONS = {"queries.jsonl": '{"_id": "q1", "text": "When?"}\n', "qrels/test.tsv": "q1\td1\t1\n"}


def corpus(**texts: str) -> str:
    return "\n".join(json.dumps({"_id": id, "text": text}) for id, text in texts.items())


@pytest.fixture
def harbour(tmp_path: Path) -> Dataset:
    return read_dataset(write(tmp_path / "harbour", {**QUESTIONS, "corpus.jsonl": corpus(d1="At nine.")}))


def test_documents_of_other_datasets_have_ids_of_their_own(harbour: Dataset, tmp_path: Path) -> None:
    fish = write(tmp_path / "fish", {"corpus.jsonl": corpus(d1="A pike.", d2="An eel.")})
    padded = pad_dataset(harbour, [fish])
    assert [document.id for document in read_padded_corpus(padded)] == ["d1", "p1:d1", "p1:d2"]
    assert collection_name(padded, load_settings(environment={})) == "evaluation-harbour+fish-default"


def test_a_text_is_read_once(harbour: Dataset, tmp_path: Path) -> None:
    fish = write(tmp_path / "fish", {"corpus.jsonl": corpus(copy=" At nine.\n", d2="An eel.", d3="An eel.")})
    assert [document.id for document in read_padded_corpus(pad_dataset(harbour, [fish]))] == ["d1", "p1:d2"]


def test_padding_changes_the_hash_of_a_dataset(harbour: Dataset, tmp_path: Path) -> None:
    fish = write(tmp_path / "fish", {"corpus.jsonl": corpus(d2="An eel.")})
    assert hash_dataset(pad_dataset(harbour, [])) == hash_dataset(harbour) != hash_dataset(pad_dataset(harbour, [fish]))


def test_folders_of_files_are_refused(harbour: Dataset, tmp_path: Path) -> None:
    files = write(tmp_path / "files", {**QUESTIONS, "html/d1.html": "<p>At nine.</p>"})
    with pytest.raises(DatasetError, match=r"has none of the files corpus\.jsonl"):
        pad_dataset(harbour, [files])
    with pytest.raises(DatasetError, match="only a corpus in JSON lines can be padded"):
        pad_dataset(read_dataset(files), [harbour.corpus.parent])
