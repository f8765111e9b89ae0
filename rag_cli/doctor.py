"""`rag doctor`."""

from collections.abc import Iterator
from dataclasses import asdict
from functools import partial

import typer

from jobs.options import Globals, command, print_json
from rag_cli.doctor_checks import Finding, attempt, fitting, machine, store
from rag_cli.model_checks import models
from rag_core.config import Settings

MISSING = 3


@command
def doctor(options: Globals) -> None:
    """What is installed, reachable and missing on this machine. Exit code 3 if something is missing.

    Rerankers and judges are loaded, and a model behind an endpoint is asked for a few tokens.

    Example: rag doctor
    """
    findings = []
    for each in _findings(options.settings):
        findings.append(each)
        if not options.json:
            typer.echo(f"{each.state:8}{each.name:24}{each.detail}")
    sound = all(each.state != "missing" for each in findings)
    if options.json:
        print_json({"ok": sound, "findings": list(map(asdict, findings))})
    if not sound:
        raise typer.Exit(MISSING)


def _findings(settings: Settings) -> Iterator[Finding]:
    yield from machine()
    yield from models(settings)
    yield attempt("settings", partial(fitting, settings))
    yield attempt("store", partial(store, settings))
