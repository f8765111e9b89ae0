"""`rag ask`."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console

from jobs.options import Globals, command, output, print_json
from rag_cli.answer import Streamed, sources, verdict_line
from rag_cli.asked import Collection, Filter
from rag_cli.explain import waterfall, ways
from rag_cli.search import parsed_option
from rag_core.events import Event
from rag_core.types import DEFAULT_COLLECTION, Reply
from rag_core.wire import citations_json, source_json, stage_rows, verdict_json


@command
def ask(
    question: Annotated[str, typer.Argument(help="What is asked.")],
    options: Globals,
    collection: Collection = DEFAULT_COLLECTION,
    filter: Filter = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="What was read for it, how that was found, and every stage's time.")
    ] = False,
) -> None:
    """An answer from what is stored, each sentence with its source; or that the sources do not say.

    Example: rag ask "how do I rotate the keys?" --collection docs
    """
    from rag_core.knowledge_base import KnowledgeBase

    console = output()
    hear = _nothing if options.json else Streamed(console).hear
    with KnowledgeBase(options.settings) as knowledge:
        knowledge.load(answering=True)
        reply = knowledge.ask(question, collection, parsed_option(filter), tell=hear)
    if options.json:
        print_json(reply_json(reply, explain))
        return
    _print(console, reply, options.verbose, explain)
    if reply.degraded:
        Console(stderr=True, quiet=options.quiet).print(f"left out: {', '.join(reply.degraded)}", markup=False)


def reply_json(reply: Reply, explain: bool) -> dict[str, Any]:
    answer = reply.answer
    return {
        "answer": answer.text,
        "citations": citations_json(answer, datetime.now(UTC)),
        "verdict": verdict_json(answer.verdict),
        "confidence": round(answer.confidence, 4),
        "finish": answer.finish,
        "standalone": reply.standalone,
        "session_id": reply.query.session_id,
        "stages": stage_rows(reply.stages),
        "degraded": list(reply.degraded),
        **({"passages": [source_json(passage) for passage in reply.passages]} if explain else {}),
    }


def _nothing(_event: Event) -> None:
    """Hears nothing."""


def _print(console: Console, reply: Reply, stages: bool, explain: bool) -> None:
    console.print()
    console.print(sources(reply, console.is_terminal, datetime.now(UTC)))
    console.print(verdict_line(reply))
    if explain and reply.passages:
        console.print()
        console.print(ways([passage.hit for passage in reply.passages], reply.stages, console.width))
    if stages or explain:
        console.print()
        console.print(waterfall(reply.stages))
