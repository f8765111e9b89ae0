"""What `rag search --explain` and `--compare` show: how hits came about, and how two rankings differ."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rag_core.retrieval.explanation import SHOWN, Ranks, rank_of, ranks, score_names
from rag_core.types import Hit, StageReport
from rag_core.wire import in_order

BAR = 40
"""Columns of a bar, so that a row fits 80 with a long name and two times."""

RANK, SCORE, MOVE, WITHOUT, WITH_MOVE = 2, 6, 4, 10, 13
SHORTEST, LONGEST = 8, 44
"""Columns of the other cells; of titles the least and the most."""

NEAR = 0.8
"""A stage that took this share of its time was nearly late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A hit of one ranking or both, and its ranks there; 0 where it is not among the hits."""

    hit: Hit
    before: int
    after: int


def ways(hits: Sequence[Hit], stages: Sequence[StageReport], width: int) -> Table:
    """A row a hit, a column a step: rank, score, and what the reranker moved. A dot: not within the leg's depth."""
    table, ranked, names = _table(), ranks(stages), score_names(hits)
    steps = {name: WITH_MOVE if name == "rerank" else WITHOUT for name in names}
    table.add_column("", justify="right", style="bold", width=RANK)
    _add_titles(table, "hit", width - RANK - sum(steps.values()) - len(steps) - 2)
    for name, columns in steps.items():
        table.add_column(f"{SHOWN.get(name, name):>{WITHOUT}}", width=columns)
    for rank, hit in enumerate(hits, start=1):
        table.add_row(str(rank), _title(hit), *(_step(hit, name, ranked) for name in names))
    return table


def waterfall(stages: Sequence[StageReport]) -> Table:
    """A bar a stage, where in the search it ran; `┊` is where its time would have ended."""
    table, rows = _table(), in_order(stages)
    end = max((report.started + report.seconds for report in rows), default=0) or 1
    for name in ("stage", "ms", "limit"):
        table.add_column(name, justify="left" if name == "stage" else "right", no_wrap=True)
    table.add_column(Text(f"0{f'{end * 1000:.1f} ms':>{BAR - 1}}", style="dim"), no_wrap=True)
    for report in rows:
        limit = f"{report.time_limit * 1000:.0f}" if isfinite(report.time_limit) else ""
        name = f"  {report.stage}" if report.parent else report.stage
        if report.skipped:
            table.add_row(name, "-", "", Text(f"skipped: {report.skipped}", style="dim"))
            continue
        table.add_row(name, f"{report.seconds * 1000:.1f}", limit, _bar(report, end))
        if report.error:
            table.add_row("", "", "", Text(report.error, style="red", overflow="fold"))
    return table


def moves(before: Sequence[Hit], after: Sequence[Hit]) -> list[Move]:
    """Every hit of both, in the order of the second ranking; then what only the first has."""
    first = {hit.chunk.id: rank for rank, hit in enumerate(before, start=1)}
    second = {hit.chunk.id: rank for rank, hit in enumerate(after, start=1)}
    kept = [Move(hit=hit, before=first.get(hit.chunk.id, 0), after=second[hit.chunk.id]) for hit in after]
    gone = [hit for hit in before if hit.chunk.id not in second]
    return [*kept, *(Move(hit=hit, before=first[hit.chunk.id], after=0) for hit in gone)]


def side_by_side(names: tuple[str, str], before: Sequence[Hit], after: Sequence[Hit], width: int) -> Group:
    """A row a rank. Beside a hit: where the other profile has it, or how far it moved from there."""
    moved = {move.hit.chunk.id: move for move in moves(before, after)}
    table = _table()
    table.add_column("", justify="right", style="bold", width=RANK)
    for name in names:
        _add_titles(table, name, (width - RANK) // 2 - SCORE - MOVE - 4)
        table.add_column("score", justify="right", width=SCORE)
        table.add_column("", width=MOVE)
    for place in range(max(len(before), len(after))):
        left = _side(before, place, lambda hit: _goes(moved[hit.chunk.id]))
        right = _side(after, place, lambda hit: _came(moved[hit.chunk.id]))
        table.add_row(str(place + 1), *left, *right)
    return Group(table, Text(_summary(names, list(moved.values())), style="dim"))


def _table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))


def _add_titles(table: Table, name: str, width: int) -> None:
    table.add_column(name, no_wrap=True, overflow="ellipsis", width=max(SHORTEST, min(width, LONGEST)))


def _step(hit: Hit, name: str, ranks: Ranks) -> Text:
    if name not in hit.scores:
        return Text("  ·", style="dim")
    rank = rank_of(hit, name, ranks)
    place = Text(f"{rank:>3}" if rank else "  ·", style="bold green" if rank and rank <= 3 else "")
    moved = _moved(rank_of(hit, "fused", ranks) or 0, rank or 0) if name == "rerank" else Text("")
    return Text.assemble(place, (f" {_score(hit.scores[name])}", "dim"), " " if moved else "", moved)


def _score(score: float) -> str:
    return f"{score:{SCORE}.3f}"[:SCORE]


def _moved(before: int, after: int) -> Text:
    if not before or not after:
        return Text("")
    if before == after:
        return Text("=", style="dim")
    return Text(f"▲{before - after}", style="green") if before > after else Text(f"▼{after - before}", style="red")


def _bar(report: StageReport, end: float) -> Text:
    start = min(BAR - 1, round(BAR * report.started / end))
    length = min(BAR - start, max(1, round(BAR * report.seconds / end)))
    limit = (report.started + report.time_limit) / end
    mark = max(0, round(BAR * limit) - start - length) if limit <= 1 else -1
    style = "red" if report.error else "yellow" if report.seconds > NEAR * report.time_limit else "green"
    return Text.assemble(" " * start, ("█" * length, style), (" " * mark + "┊" if mark >= 0 else "", "dim"))


def _side(hits: Sequence[Hit], place: int, mark: Callable[[Hit], Text]) -> tuple[str | Text, ...]:
    if place >= len(hits):
        return "", "", ""
    hit = hits[place]
    return _title(hit), _score(hit.score), mark(hit)


def _title(hit: Hit) -> Text:
    section = str(hit.chunk.metadata.get("section", "")).removeprefix(hit.origin.title).removeprefix(" > ")
    return Text.assemble(hit.origin.title, (f"  {section}" if section else "", "cyan"))


def _goes(move: Move) -> Text:
    return Text(f"→{move.after}", style="dim") if move.after else Text("only", style="yellow")


def _came(move: Move) -> Text:
    return _moved(move.before, move.after) if move.before else Text("only", style="yellow")


def _summary(names: tuple[str, str], moves: Sequence[Move]) -> str:
    both = [move for move in moves if move.before and move.after]
    up, down = (sum(sign * (move.before - move.after) > 0 for move in both) for sign in (1, -1))
    lone = (sum(not move.after for move in moves), sum(not move.before for move in moves))
    only = "".join(f", {count} only in {name}" for name, count in zip(names, lone, strict=True) if count)
    return f"{len(both)} in both ({up} higher in {names[1]}, {down} lower){only}"
