from pathlib import Path

import pytest
import tiny_models


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that reads two texts together."""
    return tiny_models.bert_files(tmp_path_factory.mktemp("cross"), "ForSequenceClassification")


@pytest.fixture(scope="session")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.bert_files(tmp_path_factory.mktemp("bert"), "")
