"""`rag search`."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from jobs.options import Globals, command, output, print_json
from rag_cli.explain import Move, moves, side_by_side, waterfall, ways
from rag_cli.question_options import Collection, Filter, Hits, Server, asked_there
from rag_core.config import Settings
from rag_core.errors import FilterError, UsageError
from rag_core.types import DEFAULT_COLLECTION, Chunk, Hit, StageReport
from rag_core.wire import highlights, in_order, retrieval_json

if TYPE_CHECKING:
    from rag_core.knowledge_base import KnowledgeBase

PASSAGE = 600
"""Characters of a passage that are shown."""


@command
def search(
    question: Annotated[str, typer.Argument(help="What is asked.")],
    options: Globals,
    k: Hits = 10,
    collection: Collection = DEFAULT_COLLECTION,
    filter: Filter = None,
    context: Annotated[int, typer.Option(help="Show so many chunks before and after each hit.", min=0, max=100)] = 0,
    explain: Annotated[
        bool, typer.Option("--explain", help="Each hit's rank and score at every step, and every stage's time.")
    ] = False,
    compare: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Beside that profile's hits.", show_default=False)
    ] = None,
    server: Server = None,
) -> None:
    """Passages that answer a question, best first.

    Example: rag search "how do I rotate the keys?" -k 3 --filter '{"key": "language", "type": "eq", "value": "en"}'
    """
    asked = Asked(question=question, k=k, collection=collection, filter=parsed_option(filter), context=context)
    if server is not None:
        _search_there(server, asked, options, explain, compare)
        return
    found = _searched(options.settings, asked)
    if compare is not None:
        other = _searched(replace(options, profile=compare).settings, asked)
        _compare(found, other, options, explain)
    elif options.json:
        print_json(_json(found, explain))
    else:
        _print(found, explain, options.quiet)
    if not found.hits:
        Console(stderr=True, quiet=options.quiet).print(f"no hits in {collection}")


def _search_there(server: str, asked: "Asked", options: Globals, explain: bool, compare: str | None) -> None:
    from rag_cli.remote import hits, retrieved

    if asked.context or compare is not None or (explain and not options.json):
        raise UsageError("--server shows hits only: --context, --compare and --explain want the store itself")
    body = {"query": asked.question, "collection": asked.collection, "top_k": asked.k, "filters": asked.filter}
    found = retrieved(server, {**body, **asked_there(options), "explain": explain})
    if options.json:
        print_json(found)
    for rank, hit in enumerate([] if options.json else hits(found), start=1):
        _show(output(), rank, hit, [], asked.question)
    if not found["results"]:
        Console(stderr=True, quiet=options.quiet).print(f"no hits in {asked.collection}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    question: str
    k: int
    collection: str
    filter: Mapping[str, Any] | None
    context: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`neighbours` has a list for each hit. `seconds` are without the loading of models."""

    asked: Asked
    settings: Settings
    hits: Sequence[Hit]
    neighbours: Sequence[Sequence[Chunk]]
    stages: Sequence[StageReport]
    seconds: float


def _searched(settings: Settings, asked: Asked) -> Found:
    from rag_core.knowledge_base import KnowledgeBase

    with KnowledgeBase(settings) as knowledge:
        knowledge.load()
        began = time.perf_counter()
        hits, neighbours, stages = _hits(knowledge, asked)
        seconds = time.perf_counter() - began
    return Found(asked=asked, settings=settings, hits=hits, neighbours=neighbours, stages=stages, seconds=seconds)


def _hits(knowledge: "KnowledgeBase", asked: Asked) -> tuple[list[Hit], list[list[Chunk]], list[StageReport]]:
    if asked.context:
        return knowledge.search_around(asked.question, asked.k, asked.collection, asked.filter, asked.context)
    hits, stages = knowledge.explain(asked.question, asked.k, asked.collection, asked.filter)
    return hits, [[] for _ in hits], stages


def _json(found: Found, explain: bool) -> dict[str, Any]:
    question, hits = found.asked.question, found.hits
    retrieval = retrieval_json(question, hits, found.stages, found.settings.profile, found.seconds, explain)
    retrieval["pipeline_version"] = found.settings.pipeline_version
    return _with_neighbours(retrieval, hits, found.neighbours) if found.asked.context else retrieval


def _print(found: Found, explain: bool, quiet: bool) -> None:
    console = output()
    for stage in in_order(found.stages):
        if stage.error and not explain and not quiet:
            typer.echo(f"without {stage.stage}: {stage.error}", err=True)
    for rank, (hit, near) in enumerate(zip(found.hits, found.neighbours, strict=True), start=1):
        _show(console, rank, hit, near, found.asked.question)
    if explain:
        if found.hits:
            console.print(ways(found.hits, found.stages, console.width))
            console.print()
        console.print(waterfall(found.stages))


def _compare(found: Found, other: Found, options: Globals, explain: bool) -> None:
    names = (found.settings.profile, other.settings.profile)
    if options.json:
        print_json(
            {
                "object": "comparison",
                "query": found.asked.question,
                "profiles": names,
                "moves": [_move_json(move) for move in moves(found.hits, other.hits)],
                "retrievals": [_json(each, explain) for each in (found, other)],
            }
        )
        return
    console = output()
    console.print(side_by_side(names, found.hits, other.hits, console.width))
    if explain:
        for each in (found, other):
            console.print(Text(f"\n{each.settings.profile}", style="bold"))
            console.print(ways(each.hits, each.stages, console.width))
            console.print()
            console.print(waterfall(each.stages))


def _move_json(move: Move) -> dict[str, Any]:
    chunk, origin = move.hit.chunk, move.hit.origin
    ranks = [move.before or None, move.after or None]
    return {"chunk_id": chunk.id, "url": origin.uri, "title": origin.title, "ranks": ranks}


def surroundings(chunk: Chunk, neighbours: Sequence[Chunk]) -> tuple[str, str]:
    """What stands before and after the chunk; what chunks share with each other is said once."""
    in_order = sorted((chunk, *neighbours), key=lambda each: each.ordinal)
    place = in_order.index(chunk)
    before = [each.text[: max(0, after.start - each.start)] for each, after in pairwise(in_order[: place + 1])]
    behind = [each.text[max(0, before.end - each.start) :] for before, each in pairwise(in_order[place:])]
    return "\n".join(map(str.strip, before)), "\n".join(map(str.strip, behind))


def _with_neighbours(
    found: dict[str, Any], hits: Sequence[Hit], neighbours: Sequence[Sequence[Chunk]]
) -> dict[str, Any]:
    pairs = zip(hits, neighbours, strict=True)
    around = [dict(zip(("before", "after"), surroundings(hit.chunk, near), strict=True)) for hit, near in pairs]
    results = [{**result, "context": texts} for result, texts in zip(found["results"], around, strict=True)]
    return {**found, "results": results}


def _show(console: Console, rank: int, hit: Hit, neighbours: Sequence[Chunk], question: str) -> None:
    heading = Text.assemble((f"{rank}. ", "bold"), (hit.origin.title, "bold"), f"  {hit.score:.3f}")
    section = str(hit.chunk.metadata.get("section", ""))
    if section:
        heading.append(f"  {section}", style="cyan")
    if "page" in hit.chunk.metadata:
        heading.append(f"  page {hit.chunk.metadata['page']}", style="cyan")
    console.print(heading)
    console.print(Text(hit.origin.uri, style="dim"), soft_wrap=True)
    before, after = surroundings(hit.chunk, neighbours)
    if before:
        console.print(Text(before, style="dim"))
    passage = Text(hit.chunk.text if neighbours else _shortened(hit.chunk.text))
    for start, end in highlights(question, passage.plain):
        passage.stylize("bold yellow", start, end)
    console.print(passage)
    if after:
        console.print(Text(after, style="dim"))
    console.print()


def _shortened(text: str) -> str:
    return text if len(text) <= PASSAGE else text[:PASSAGE].rsplit(" ", 1)[0] + " …"


def parsed_option(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        parsed: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise FilterError(f"--filter must be JSON, got {text!r}: {error}") from None
    if parsed is None:
        raise FilterError("--filter must be an object with `type`, got null")
    return parsed
