"""Options of every command that asks a question."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from jobs.options import Globals
from rag_core.errors import UsageError

Hits = Annotated[int, typer.Option("-k", help="How many hits.", min=1, max=1000)]
Collection = Annotated[str, typer.Option(help="Where it is asked.")]
Filter = Annotated[str | None, typer.Option(metavar="JSON", help="A condition on metadata.", show_default=False)]
Server = Annotated[
    str | None, typer.Option(metavar="URL", help="Ask a gateway there, and not this store.", show_default=False)
]


def asked_there(options: Globals) -> dict[str, Any]:
    """What of the global options a gateway hears. UsageError for those that it does not."""
    given = {"config": options.config, "set": options.set, "store": options.store, "tenant": options.tenant}
    refuse_unheard([name for name, value in given.items() if value])
    return {"profile": options.profile} if options.profile else {}


def refuse_unheard(names: Sequence[str]) -> None:
    if names:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(f"--server works with its own store and settings: {listed} would change nothing there")
