"""Secrets in the command line or the variables of a submitted job, which Ray stores and shows."""

import json

import pytest

from jobs.submitted_job import SUBMITTED_JOB
from rag_cli.terminal.command_secrets import refuse_submitted_secrets
from rag_core.errors import UsageError

DSN = "postgresql://rag:hunter2@db.internal/rag"


def simulate_submission(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    """Makes this process look like a job that was submitted with these `env_vars`."""
    monkeypatch.setenv(SUBMITTED_JOB, json.dumps({"runtime_env": {"env_vars": variables}, "metadata": {}}))


@pytest.mark.parametrize("override", [f'store.url="{DSN}"', f"store.url={DSN}", "generation.api_key=sk-12345678901234"])
def test_a_secret_in_the_command_line_is_refused_without_quoting_it(
    override: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_submitted_secrets([override])  # this process is no submitted job
    simulate_submission(monkeypatch)
    with pytest.raises(UsageError, match="must not hold a secret") as refusal:
        refuse_submitted_secrets([override])
    assert override.partition("=")[0] in str(refusal.value)
    assert "hunter2" not in str(refusal.value)
    assert "sk-1234" not in str(refusal.value)


@pytest.mark.parametrize("variables", [{"RAG_STORE__URL": DSN}, {"PGPASSWORD": "hunter2"}])
def test_a_secret_in_the_variables_is_refused(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_submission(monkeypatch, **variables)
    with pytest.raises(UsageError, match=r"in (store\.url|password)"):
        refuse_submitted_secrets([])


@pytest.mark.parametrize("url", ["env:RAG_DSN", "file:/run/secrets/rag/dsn", "host=db.internal dbname=rag", "embedded"])
def test_references_and_dsns_without_a_password_are_accepted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_submission(monkeypatch, RAG_STORE__URL=url, OMP_NUM_THREADS="2")
    refuse_submitted_secrets([f'store.url="{url}"', "embedding.type=hashing"])


def test_a_job_without_a_runtime_environment_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SUBMITTED_JOB, json.dumps({"runtime_env": None, "metadata": {}}))
    refuse_submitted_secrets(["embedding.type=hashing"])
