"""`rag doctor`."""

from dataclasses import asdict
from functools import partial
from itertools import chain

import typer

from rag_cli.doctor_checks import check_auth, check_machine, check_secrets, check_settings, check_store, run_check
from rag_cli.model_checks import check_models
from rag_cli.terminal.options import GlobalOptions, command, print_json

MISSING_EXIT_CODE = 3


@command
def doctor(options: GlobalOptions) -> None:
    """Check what is installed, reachable or missing on this machine. The exit code is 3 if something is missing.

    Rerankers and judges are loaded. A model at an endpoint is called for a few tokens.

    Example: rag doctor
    """
    settings = options.settings
    checks = {"settings": check_settings, "secrets": check_secrets, "auth": check_auth, "store": check_store}
    results = (run_check(name, partial(check, settings)) for name, check in checks.items())
    findings = []
    for finding in chain(check_machine(), check_models(settings), results):
        findings.append(finding)
        if not options.json:
            typer.echo(f"{finding.state:8}{finding.name:24}{finding.detail}")
    ok = all(finding.state != "missing" for finding in findings)
    if options.json:
        print_json({"ok": ok, "findings": list(map(asdict, findings))})
    if not ok:
        raise typer.Exit(MISSING_EXIT_CODE)
