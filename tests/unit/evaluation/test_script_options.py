"""The options that `rag evaluate` refuses for scripted conversations."""

from pathlib import Path

import pytest
from commands import rag_in_process


@pytest.mark.parametrize("option", [("--conversation", "raw"), ("--pad", "."), ("--answers",)])
def test_options_of_other_datasets_are_refused(
    option: tuple[str, ...], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scripted_conversations.jsonl").touch()
    refused = rag_in_process(capfd)("evaluate", tmp_path, *option)
    assert (refused.code, "scripted conversations measure answers" in refused.err) == (2, True)
