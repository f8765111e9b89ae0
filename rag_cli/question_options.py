"""The options of commands that take a question, and the check for those that `--server` does not allow."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rag_cli.terminal.options import GlobalOptions
from rag_core.errors import UsageError

if TYPE_CHECKING:
    from rag_core.knowledge_base import KnowledgeBase

HitsOption = Annotated[int, typer.Option("-k", help="The number of hits.", min=1, max=1000)]
CollectionOption = Annotated[str, typer.Option(help="The collection to search.")]
FilterOption = Annotated[
    str | None, typer.Option(metavar="JSON", help="A metadata filter in JSON.", show_default=False)
]
GroupOption = Annotated[
    list[str] | None,
    typer.Option("--group", help="Ask as a member of this group; repeatable.", show_default=False),
]
SessionOption = Annotated[
    str, typer.Option("--session", metavar="ID", help="Continue the conversation with this id.", show_default=False)
]
ServerOption = Annotated[
    str | None, typer.Option(metavar="URL", help="Send the question to this gateway.", show_default=False)
]


def server_options(options: GlobalOptions) -> dict[str, Any]:
    """The global options that a request to a gateway contains. Raises UsageError for those that it cannot contain."""
    local = {"config": options.config, "set": options.set, "store": options.store, "tenant": options.tenant}
    refuse_local_options([name for name, value in local.items() if value])
    return {"profile": options.profile} if options.profile else {}


def refuse_groups(groups: Sequence[str]) -> None:
    """Raises UsageError if there are any groups: a gateway knows those of its callers."""
    refuse_local_options(["group"] if groups else [])


def print_unknown_keys(
    knowledge: "KnowledgeBase", filters: Mapping[str, Any] | None, collection: str, options: GlobalOptions
) -> None:
    """Prints a line to stderr for each key of the filters that no document has: it can be misspelt."""
    for sentence in knowledge.describe_unknown_keys(filters, collection):
        if not options.quiet:
            typer.echo(f"note: {sentence}", err=True)


def refuse_local_options(names: Sequence[str]) -> None:
    """Raises UsageError if there are any names. They are parameter names, such as `dry_run` for `--dry-run`."""
    if names:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UsageError(f"the server has its own store and settings; these cannot be used with --server: {flags}")
