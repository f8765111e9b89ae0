"""`rag search`."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any
from uuid import uuid4

import typer
from rich.console import Console
from rich.text import Text

from jobs.options import Globals, command, output, print_json
from rag_core.config import Settings
from rag_core.detection import DEFAULT_PROFILE
from rag_core.errors import FilterError
from rag_core.types import DEFAULT_COLLECTION, Chunk, Hit, StageReport

if TYPE_CHECKING:
    from rag_core.knowledge_base import KnowledgeBase

SHORTEST_WORD = 3
PASSAGE = 600
"""Characters of a passage that are shown."""


@command
def search(
    question: Annotated[str, typer.Argument(help="What is asked.")],
    options: Globals,
    k: Annotated[int, typer.Option("-k", help="How many hits.", min=1, max=1000)] = 10,
    collection: Annotated[str, typer.Option(help="Where it is asked.")] = DEFAULT_COLLECTION,
    filter: Annotated[
        str | None, typer.Option(metavar="JSON", help="A condition on metadata.", show_default=False)
    ] = None,
    context: Annotated[int, typer.Option(help="Show so many chunks before and after each hit.", min=0, max=100)] = 0,
    explain: Annotated[bool, typer.Option("--explain", help="Every score, and the time of every stage.")] = False,
) -> None:
    """Passages that answer a question, best first.

    Example: rag search "how do I rotate the keys?" -k 3 --filter '{"key": "language", "type": "eq", "value": "en"}'
    """
    from rag_core.knowledge_base import KnowledgeBase

    with KnowledgeBase(options.settings) as knowledge:
        knowledge.load()
        began = time.perf_counter()
        hits, neighbours, stages = _searched(knowledge, question, k, collection, filter, context)
        seconds = time.perf_counter() - began
    if options.json:
        found = retrieval_json(question, hits, stages, options.settings, seconds, explain)
        print_json(_with_neighbours(found, hits, neighbours) if context else found)
        return
    console = output()
    for rank, (hit, near) in enumerate(zip(hits, neighbours, strict=True), start=1):
        _show(console, rank, hit, near, question, explain)
    if explain:
        _show_stages(console, stages)
    if not hits:
        Console(stderr=True, quiet=options.quiet).print(f"no hits in {collection}")


def _searched(
    knowledge: "KnowledgeBase", question: str, k: int, collection: str, filter: str | None, context: int
) -> tuple[list[Hit], list[list[Chunk]], list[StageReport]]:
    if context:
        return knowledge.search_around(question, k, collection, _filter(filter), context)
    hits, stages = knowledge.explain(question, k, collection, _filter(filter))
    return hits, [[] for _ in hits], stages


def retrieval_json(
    question: str, hits: Sequence[Hit], stages: Sequence[StageReport], settings: Settings, seconds: float, explain: bool
) -> dict[str, Any]:
    timings = {report.stage: round(report.seconds * 1000, 1) for report in stages}
    return {
        "id": f"ret_{uuid4().hex}",
        "object": "retrieval",
        "query": question,
        "standalone_query": question,
        "results": [_result(rank, hit, question, explain) for rank, hit in enumerate(hits, start=1)],
        "profile": {"name": settings.profile, "selected_by": _selected_by(settings.profile)},
        "pipeline_version": settings.pipeline_version,
        "partial": any(report.error for report in stages),
        "degraded": [report.stage for report in stages if report.error],
        "timings_ms": {**timings, "total": round(seconds * 1000, 1)},
        "next_cursor": None,
    }


def _selected_by(profile: str) -> str:
    return "default" if profile == DEFAULT_PROFILE else "explicit"


def surroundings(chunk: Chunk, neighbours: Sequence[Chunk]) -> tuple[str, str]:
    """What stands before and after the chunk; what chunks share with each other is said once."""
    in_order = sorted((chunk, *neighbours), key=lambda each: each.ordinal)
    place = in_order.index(chunk)
    before = [each.text[: max(0, after.start - each.start)] for each, after in pairwise(in_order[: place + 1])]
    behind = [each.text[max(0, before.end - each.start) :] for before, each in pairwise(in_order[place:])]
    return "\n".join(map(str.strip, before)), "\n".join(map(str.strip, behind))


def highlights(question: str, text: str) -> list[tuple[int, int]]:
    """Where the question's words stand in the text, by their beginning: `key` also finds `keys`."""
    words = {word for word in re.findall(r"\w+", question.lower()) if len(word) >= SHORTEST_WORD}
    if not words:
        return []
    longest_first = sorted(words, key=len, reverse=True)
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\w*", re.IGNORECASE)
    return [match.span() for match in pattern.finditer(text)]


def _result(rank: int, hit: Hit, question: str, explain: bool) -> dict[str, Any]:
    chunk, origin = hit.chunk, hit.origin
    result: dict[str, Any] = {
        "rank": rank,
        "chunk_id": chunk.id,
        "document_id": chunk.document_id,
        "text": chunk.text,
        "title": origin.title,
        "url": origin.uri,
        "page": chunk.metadata.get("page"),
        "section": chunk.metadata.get("section"),
        "start": chunk.start,
        "end": chunk.end,
        "score": round(hit.score, 6),
        "retrievers": list(hit.scores),
        "highlights": highlights(question, chunk.text),
        "metadata": dict(origin.metadata),
    }
    if explain:
        result["explain"] = {stage: {"rank": rank, "score": score} for stage, score in hit.scores.items()}
    return result


def _with_neighbours(
    found: dict[str, Any], hits: Sequence[Hit], neighbours: Sequence[Sequence[Chunk]]
) -> dict[str, Any]:
    pairs = zip(hits, neighbours, strict=True)
    around = [dict(zip(("before", "after"), surroundings(hit.chunk, near), strict=True)) for hit, near in pairs]
    results = [{**result, "context": texts} for result, texts in zip(found["results"], around, strict=True)]
    return {**found, "results": results}


def _show(console: Console, rank: int, hit: Hit, neighbours: Sequence[Chunk], question: str, explain: bool) -> None:
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
    if explain:
        console.print(Text("  ".join(f"{stage} {score:.4f}" for stage, score in hit.scores.items()), style="magenta"))
    console.print()


def _show_stages(console: Console, stages: Sequence[StageReport]) -> None:
    longest = max((report.seconds for report in stages), default=0) or 1
    for report in stages:
        bar = "█" * max(1, round(30 * report.seconds / longest))
        console.print(f"{report.stage:8} {report.seconds * 1000:8.1f} ms  {bar}  {report.error}")


def _shortened(text: str) -> str:
    return text if len(text) <= PASSAGE else text[:PASSAGE].rsplit(" ", 1)[0] + " …"


def _filter(text: str | None) -> Mapping[str, Any] | None:
    if text is None:
        return None
    try:
        parsed: Mapping[str, Any] = json.loads(text)
    except ValueError as error:
        raise FilterError(f"--filter must be JSON, got {text!r}: {error}") from None
    if parsed is None:
        raise FilterError("--filter must be an object with `type`, got null")
    return parsed
