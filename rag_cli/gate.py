"""`rag gate`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_rows


@command
def gate(
    run: Annotated[Path, typer.Argument(help="The run to check: a folder of rag evaluate --out.")],
    options: GlobalOptions,
    base: Annotated[
        str, typer.Option(metavar="RUN", help="The run that must not be lost against; `promoted`: the promoted one.")
    ] = "promoted",
    gate_file: Annotated[
        Path | None,
        typer.Option(
            "--gate",
            metavar="FILE",
            help="A YAML file with measures, margins, floors, ranges and latency. By default nDCG@10 may not fall.",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the outcome, the means and the time of the run in Prometheus' text format, too.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Refuse a regression: check a run against its base, and against the floors and ranges of a gate file.

    The exit code is 0 for PASS, 1 for FAIL, 4 for INCONCLUSIVE (the questions are too few to exclude a loss) and 5 if
    the run cannot be judged. Prometheus' node exporter publishes the file of --metrics.

    Example: rag gate runs/tonight --base promoted --gate gate.yaml
    """
    from jobs.evaluation_runs import read_runs
    from jobs.gate_file import read_gate
    from jobs.promotion import pair_with_base
    from jobs.usage_files import replace_text
    from rag_core.evaluation.gate import EXIT_CODES, Gate, check_run
    from rag_core.evaluation.gate_metrics import format_gate_metrics

    limits = read_gate(gate_file) if gate_file else Gate()
    runs = read_runs(run)
    pairs = pair_with_base(runs, base, needs_base=not limits.has_absolute_limits)
    result = check_run(limits, runs, pairs)
    if metrics:
        replace_text(metrics, format_gate_metrics(result, runs))
    if options.json:
        print_json({"outcome": result.outcome, "compared": bool(pairs), "checks": [asdict(c) for c in result.checks]})
    else:
        columns = ("kind", "dataset", "measure", "outcome", "reason")
        print_rows([asdict(check) for check in result.checks], columns, options, "")
        if not pairs:
            typer.echo(
                "nothing is promoted for this profile and dataset: only floors, ranges and seconds were checked",
                err=True,
            )
        stdout_console().print(f"\n{result.outcome.upper()}")
    raise typer.Exit(EXIT_CODES[result.outcome])
