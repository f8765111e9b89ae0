"""The mutants of the matrix of routes and credentials fit the code."""

from access_mutants import MUTANTS, ROOT


def test_every_edit_finds_its_text() -> None:
    missing = [
        (mutant.name, edit.old)
        for mutant in MUTANTS
        for edit in mutant.edits
        if edit.old not in (ROOT / edit.file).read_text()
    ]
    assert missing == []
