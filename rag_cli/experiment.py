"""`rag experiment`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rag_cli.connections import open_store
from rag_cli.terminal.consoles import stdout_console
from rag_cli.terminal.options import GlobalOptions, command, print_json
from rag_cli.terminal.tables import print_facts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rag_core.evaluation.experiments import ExperimentReport, Observation


@command
def experiment(
    name: Annotated[str, typer.Argument(help="The name of the experiment.")],
    options: GlobalOptions,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            exists=True,
            dir_okay=False,
            help="Files of exposures, as JSON lines; by default what gateways stored, rated by its readers.",
            show_default=False,
        ),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            max=0.999,
            help="The intended share of conversations with the treatment; by default the recorded one.",
            show_default=False,
        ),
    ] = None,
    effect: Annotated[float, typer.Option(min=0.0001, help="The difference in quality that is worth finding.")] = 0.05,
) -> None:
    """Report on an experiment: is the split right, is the treatment better, is a guardrail broken?

    It can be looked at as often as you like: the interval of the difference is valid at all looks together.

    Example: rag experiment reranker-1 --effect 0.05
    """
    from rag_core.evaluation.experiments import report_experiment
    from rag_core.evaluation.exposures import read_observations

    observations = list(read_observations(files, name)) if files else _read_stored(name, options)
    report = report_experiment(observations, effect, share)
    if options.json:
        print_json(asdict(report))
    else:
        print_facts(_describe_report(report))
        stdout_console().print(f"\n{report.recommendation}", markup=False)


def _read_stored(name: str, options: GlobalOptions) -> "Sequence[Observation]":
    from rag_core.evaluation.experiments import Observation
    from rag_core.storage.exposures import Exposures

    with open_store(options).connect() as connection:
        rows = Exposures(connection, options.settings.tenant).read(name)
        return [Observation(exposure=exposure, quality=quality) for exposure, quality in rows]


def _describe_report(report: "ExperimentReport") -> dict[str, str]:
    difference = report.difference
    quality = (
        f"{difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f}), p {report.p:.4f}"
        if difference
        else "too few conversations were measured"
    )
    return {
        "conversations": f"{report.control} control, {report.treatment} treatment; split p {report.split_p:.4f}",
        "quality": f"{quality}; measured for {report.coverage:.0%} of the questions",
        **{
            guardrail.name: f"{guardrail.control:.1%} control, {guardrail.treatment:.1%} treatment; p {guardrail.p:.4f}"
            for guardrail in report.guardrails
        },
    }
