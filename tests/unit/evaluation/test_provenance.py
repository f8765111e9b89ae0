"""The description of the program in a report."""

import sys

import pytest

from jobs.provenance import describe_program


@pytest.mark.parametrize(
    "secret",
    [
        "--set=generation.api_key=sesame",
        "generation.api_key=it's sesame",
        "store.url=host=h password='open sesame'",
        "generation={type: chat, api_key: 'open sesame'}",
        "http://user:sesame@host/v1",
    ],
)
def test_the_command_of_a_report_has_no_secrets(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["rag", "evaluate", "some data", "--set", secret])
    command = describe_program()["command"]
    assert command.startswith("rag evaluate 'some data' --set ")
    assert "sesame" not in command
