"""Objects of the user's own, as settings name them."""

import sys
from pathlib import Path

import pytest

from rag_core.config import PythonObject
from rag_core.errors import ConfigError, ModelError
from rag_core.wiring.python_objects import build_python_object

OWN = """\
from rag_core.errors import ModelError


class Mine:
    def __init__(self, size=1):
        if size < 0:
            raise ValueError("size must be 0 or more")
        if size == 0:
            raise ModelError("no weights")
        self.size = size

    def split(self, document_id, document):
        return ()


class NoChunker:
    pass
"""


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme_own.py").write_text(OWN)
    (tmp_path / "acme_broken.py").write_text("def mine(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def build_object(name: str, **arguments: object):  # type: ignore[no-untyped-def]
    return build_python_object(PythonObject(type="python", object=name, arguments=arguments), "chunking", "split")


def test_an_object_is_called_with_its_arguments() -> None:
    assert build_object("acme_own:Mine", size=3).size == 3


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("acme_none:Mine", {}, "ModuleNotFoundError: No module named 'acme_none'"),
        ("acme_own:Yours", {}, "AttributeError: .* has no attribute 'Yours'"),
        ("acme_own:Mine", {"weight": 1}, "TypeError: .* unexpected keyword argument 'weight'"),
        ("acme_own:Mine", {"size": -1}, r"ValueError: size must be 0 or more \(acme_own.py, line 7\)"),
        ("acme_broken:mine", {}, "SyntaxError: "),
    ],
)
def test_one_that_cannot_be_made_is_refused_with_its_name_and_the_reason(
    name: str, arguments: dict[str, int], reason: str
) -> None:
    with pytest.raises(ConfigError, match=f"chunking: cannot build the object {name}: {reason}"):
        build_object(name, **arguments)


def test_an_error_with_a_name_of_ours_keeps_it() -> None:
    with pytest.raises(ModelError, match="no weights"):
        build_object("acme_own:Mine", size=0)


def test_one_without_the_method_of_its_role_is_refused() -> None:
    reason = "chunking: the object acme_own:NoChunker must have split, got NoChunker without split"
    with pytest.raises(ConfigError, match=reason):
        build_object("acme_own:NoChunker")


def test_modules_in_the_working_directory_come_after_those_that_are_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "acme_here.py").write_text(OWN)
    (folder / "acme_own.py").write_text("raise RuntimeError('the other module must win')")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert build_object("acme_here:Mine", size=2).size == 2
    assert build_object("acme_own:Mine", size=3).size == 3
    assert sys.path[-1] == str(folder)
