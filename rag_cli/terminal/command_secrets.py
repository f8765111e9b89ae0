"""The rule for secrets in a command: others can read its arguments, and Ray stores those of a submitted job."""

from collections.abc import Iterator, Mapping, Sequence

from jobs.provenance import hide_secrets
from jobs.submitted_job import is_submitted_job, read_runtime_env
from rag_core.errors import UsageError
from rag_core.private_files import MARKS
from rag_core.secret_references import is_reference

ADVICE = "set it in the environment, such as RAG_STORE__URL, or refer to it: env:NAME or file:/path"


def holds_secret(assignment: str) -> bool:
    """True if the value of SECTION.KEY=VALUE is a secret, and not a reference to one."""
    return not is_reference(assignment.partition("=")[2].strip("\"'")) and any(
        mark in hide_secrets(assignment) for mark in MARKS
    )


def find_warning(overrides: Sequence[str]) -> str:
    """A warning if an option of this command holds a secret, or an empty string."""
    if not any(map(holds_secret, overrides)):
        return ""
    return f"warning: others can read the secret in this command line, in `ps` and job logs; {ADVICE}"


def refuse_submitted_secrets(overrides: Sequence[str]) -> None:
    """Raises UsageError if this process is a submitted job whose command line or variables hold a secret.

    Only the settings of this program and the variables of libpq are examined.
    """
    if not is_submitted_job():
        return
    names = [
        assignment.partition("=")[0] for assignment in (*overrides, *_list_variables()) if holds_secret(assignment)
    ]
    if names:
        raise UsageError(
            f"a submitted job must not hold a secret in its command line or env_vars, got one in {', '.join(names)}: "
            "Ray has stored it, and shows it in its dashboard and logs, so replace the secret; then set it on the "
            "nodes before `ray start`, or refer to it: env:NAME or file:/path"
        )


def _list_variables() -> Iterator[str]:
    """Yields the `env_vars` of the job as assignments of settings."""
    variables: Mapping[str, str] = read_runtime_env().get("env_vars") or {}
    for name, value in variables.items():
        if name.startswith("RAG_"):
            yield f"{name.removeprefix('RAG_').lower().replace('__', '.')}={value}"
        elif name == "PGPASSWORD":
            yield f"password={value}"
