"""`rag promote`."""

from pathlib import Path
from typing import Annotated

import typer

from rag_cli.terminal.options import GlobalOptions, command
from rag_cli.terminal.tables import print_rows


@command
def promote(
    run: Annotated[Path, typer.Argument(help="The run to accept: a folder of rag evaluate --out.")],
    options: GlobalOptions,
) -> None:
    """Make a run the base of its profile and datasets, for `rag gate --base promoted`.

    The run is copied to RAG_HOME/runs, under the hash of its content.

    Example: rag promote runs/tonight
    """
    from jobs.evaluation_runs import find_runs, read_run
    from jobs.promotion import promote_run

    rows = []
    for folder in find_runs(run):
        measured = read_run(folder)
        rows.append({"dataset": measured.name, "profile": measured.profile, "run": promote_run(folder)})
    print_rows(rows, ("dataset", "profile", "run"), options, "")
