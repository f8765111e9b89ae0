"""`rag doctor`."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import typer

from jobs.options import GlobalOptions, command, print_json
from rag_cli.doctor_checks import Finding, check_machine, check_settings, check_store, run_check
from rag_cli.model_checks import check_models
from rag_core.config import Settings

MISSING_EXIT_CODE = 3


@command
def doctor(options: GlobalOptions) -> None:
    """Check what is installed, reachable or missing on this machine. The exit code is 3 if something is missing.

    Rerankers and judges are loaded. A model at an endpoint is asked for a few tokens.

    Example: rag doctor
    """
    findings = []
    for finding in _run_checks(options.settings):
        findings.append(finding)
        if not options.json:
            typer.echo(f"{finding.state:8}{finding.name:24}{finding.detail}")
    ok = all(finding.state != "missing" for finding in findings)
    if options.json:
        print_json({"ok": ok, "findings": list(map(asdict, findings))})
    if not ok:
        raise typer.Exit(MISSING_EXIT_CODE)


def _run_checks(settings: Settings) -> Iterator[Finding]:
    yield from check_machine()
    yield from check_models(settings)
    yield run_check("settings", partial(check_settings, settings))
    yield run_check("store", partial(check_store, settings))
