"""The mutants of the access matrix fit the code."""

import pytest
from access_mutants import MUTANTS, ROOT, Mutant


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_text_that_exists(mutant: Mutant) -> None:
    for edit in mutant.edits:
        assert edit.old in (ROOT / edit.file).read_text()
