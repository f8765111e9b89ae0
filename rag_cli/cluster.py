"""`rag cluster`."""

import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from rag_cli.terminal.consoles import stderr_console, stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_core.errors import UnavailableError, UsageError

DEFAULT_GATEWAY_PORT = 8000
STYLES = {"ok": "green", "warning": "yellow", "failed": "red"}

app = typer.Typer(help="Ray clusters: whether every node has and reaches what jobs need.", no_args_is_help=True)


@app.command()
@command
def check(
    options: GlobalOptions,
    sources: Annotated[
        list[str] | None,
        typer.Argument(help="Sources that every node must see the same files of.", show_default=False),
    ] = None,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="The HTTP port of the gateway on the nodes.")
    ] = DEFAULT_GATEWAY_PORT,
    timeout: Annotated[float, typer.Option(min=1, help="The seconds that a node has to answer each question.")] = 60.0,
) -> None:
    """Check every node of the cluster that RAY_ADDRESS names, and print what to do about each problem.

    Checked are versions, the store, sources, clocks, disks, memory, ports, GPUs and the environment. Nothing is
    changed. Run it on a node of the cluster. The exit code is 3 if a check failed.

    Example: rag cluster check s3://handbook/docs
    """
    from jobs.cluster_check import ClusterCheck
    from jobs.ray_runner import redirect_native_errors
    from rag_core.wiring.ingestion import open_source

    if "RAY_ADDRESS" not in os.environ:
        raise UsageError("RAY_ADDRESS must name the head of the cluster, such as head.internal:6379; it is not set")
    settings = options.settings
    with stderr_console(options.quiet, soft_wrap=True) as console, redirect_native_errors():
        cluster_check = ClusterCheck(
            store_url=settings.store.url,
            sources=[open_source(settings, location) for location in sources or ()],
            gateway_port=port,
            timeout=timeout,
            on_step=lambda line: console.print(line, markup=False, highlight=False),
        )
        findings = list(cluster_check.run())
    ok = all(finding.state != "failed" for finding in findings)
    if options.json:
        print_json({"ok": ok, "findings": list(map(asdict, findings))})
    else:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for name in ("state", "node", "check", "detail", "what to do"):
            table.add_column(name, overflow="fold")
        for finding in findings:
            state = f"[{STYLES[finding.state]}]{finding.state}[/]"
            table.add_row(state, *map(escape, (finding.node, finding.check, finding.detail, finding.remedy)))
        stdout_console().print(table)
    if not ok:
        raise typer.Exit(UnavailableError.exit_code)
