"""The tables of `rag search --explain` and `--compare`: the scores of hits by step, and two rankings compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from math import isfinite

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from rag_core.retrieval.explanation import DISPLAY_NAMES, Ranks, find_rank, ranks_by_stage, score_names
from rag_core.types import Hit, StageReport
from rag_core.wire.stages import sort_stages

BAR_WIDTH = 40
"""The width of a bar in columns, so that a row with a long name and two times fits into 80 columns."""

RANK_WIDTH, SCORE_WIDTH, MOVE_WIDTH, STEP_WIDTH, RERANK_WIDTH = 2, 6, 4, 10, 13
MIN_TITLE_WIDTH, MAX_TITLE_WIDTH = 8, 44

NEARLY_LATE = 0.8
"""The share of its time limit above which a stage is marked as nearly late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A hit of two rankings, and its rank in each; 0 if a ranking does not have it."""

    hit: Hit
    before: int
    after: int


def print_failures(stages: Sequence[StageReport]) -> None:
    """Prints one line to stderr for each stage that failed and was left out, with the reason."""
    for report in sort_stages(stages):
        if report.error:
            typer.echo(f"left out {report.stage}: {report.error}", err=True)


def hits_table(hits: Sequence[Hit], stages: Sequence[StageReport], width: int) -> Table:
    """One row per hit, one column per step: the rank, the score, and the move by the reranker.

    A dot means that the hit is not within the depth of the leg.
    """
    table, ranks, names = _plain_table(), ranks_by_stage(stages), score_names(hits)
    widths = {name: RERANK_WIDTH if name == "rerank" else STEP_WIDTH for name in names}
    table.add_column("", justify="right", style="bold", width=RANK_WIDTH)
    _add_title_column(table, "hit", width - RANK_WIDTH - sum(widths.values()) - len(widths) - 2)
    for name, step_width in widths.items():
        table.add_column(f"{DISPLAY_NAMES.get(name, name):>{STEP_WIDTH}}", width=step_width)
    for rank, hit in enumerate(hits, start=1):
        table.add_row(str(rank), _render_title(hit), *(_render_step(hit, name, ranks) for name in names))
    return table


def waterfall(stages: Sequence[StageReport]) -> Table:
    """One bar per stage, from its start to its end; `┊` marks the time limit of the stage."""
    table, reports = _plain_table(), sort_stages(stages)
    end = max((report.started + report.seconds for report in reports), default=0) or 1
    for name in ("stage", "ms", "limit"):
        table.add_column(name, justify="left" if name == "stage" else "right", no_wrap=True)
    table.add_column(Text(f"0{f'{end * 1000:.1f} ms':>{BAR_WIDTH - 1}}", style="dim"), no_wrap=True)
    for report in reports:
        limit = f"{report.time_limit * 1000:.0f}" if isfinite(report.time_limit) else ""
        name = f"  {report.stage}" if report.parent else report.stage
        if report.skipped:
            table.add_row(name, "-", "", Text(f"skipped: {report.skipped}", style="dim"))
            continue
        table.add_row(name, f"{report.seconds * 1000:.1f}", limit, _render_bar(report, end))
        if report.error:
            table.add_row("", "", "", Text(report.error, style="red", overflow="fold"))
    return table


def list_moves(before: Sequence[Hit], after: Sequence[Hit]) -> list[Move]:
    """The hits of both rankings, in the order of `after`. Hits that are only in `before` are last."""
    old_ranks = {hit.chunk.id: rank for rank, hit in enumerate(before, start=1)}
    new_ranks = {hit.chunk.id: rank for rank, hit in enumerate(after, start=1)}
    remaining = [Move(hit=hit, before=old_ranks.get(hit.chunk.id, 0), after=new_ranks[hit.chunk.id]) for hit in after]
    removed = [hit for hit in before if hit.chunk.id not in new_ranks]
    return [*remaining, *(Move(hit=hit, before=old_ranks[hit.chunk.id], after=0) for hit in removed)]


def comparison_table(names: tuple[str, str], before: Sequence[Hit], after: Sequence[Hit], width: int) -> Group:
    """Two rankings next to each other, one row per rank, and a summary.

    Each hit of `before` shows its rank in `after`. Each hit of `after` shows how far it moved.
    """
    moves = list_moves(before, after)
    move_by_chunk = {move.hit.chunk.id: move for move in moves}
    table, only_mark = _plain_table(), Text("only", style="yellow")
    table.add_column("", justify="right", style="bold", width=RANK_WIDTH)
    for name in names:
        _add_title_column(table, name, (width - RANK_WIDTH) // 2 - SCORE_WIDTH - MOVE_WIDTH - 4)
        table.add_column("score", justify="right", width=SCORE_WIDTH)
        table.add_column("", width=MOVE_WIDTH)
    for old, new in zip_longest(before, after):
        old_cells: tuple[str | Text, ...] = ("", "", "")
        new_cells: tuple[str | Text, ...] = ("", "", "")
        if old:
            move = move_by_chunk[old.chunk.id]
            old_cells = _hit_cells(old, Text(f"→{move.after}", style="dim") if move.after else only_mark)
        if new:
            move = move_by_chunk[new.chunk.id]
            new_cells = _hit_cells(new, _render_move(move.before, move.after) if move.before else only_mark)
        table.add_row(str(table.row_count + 1), *old_cells, *new_cells)
    return Group(table, Text(_summarize_moves(names, moves), style="dim"))


def _plain_table() -> Table:
    return Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))


def _add_title_column(table: Table, name: str, width: int) -> None:
    title_width = max(MIN_TITLE_WIDTH, min(width, MAX_TITLE_WIDTH))
    table.add_column(name, no_wrap=True, overflow="ellipsis", width=title_width)


def _render_step(hit: Hit, name: str, ranks: Ranks) -> Text:
    """The rank and the score of a hit after a step, and for the reranker the move."""
    if name not in hit.scores:
        return Text("  ·", style="dim")
    rank = find_rank(hit, name, ranks)
    rank_text = Text(f"{rank:>3}" if rank else "  ·", style="bold green" if rank and rank <= 3 else "")
    move = _render_move(find_rank(hit, "fused", ranks) or 0, rank or 0) if name == "rerank" else Text("")
    return Text.assemble(rank_text, (f" {_format_score(hit.scores[name])}", "dim"), " " if move else "", move)


def _format_score(score: float) -> str:
    return f"{score:{SCORE_WIDTH}.3f}"[:SCORE_WIDTH]


def _render_move(before: int, after: int) -> Text:
    if not before or not after:
        return Text("")
    if before == after:
        return Text("=", style="dim")
    return Text(f"▲{before - after}", style="green") if before > after else Text(f"▼{after - before}", style="red")


def _render_bar(report: StageReport, end: float) -> Text:
    start = min(BAR_WIDTH - 1, round(BAR_WIDTH * report.started / end))
    length = min(BAR_WIDTH - start, max(1, round(BAR_WIDTH * report.seconds / end)))
    limit = (report.started + report.time_limit) / end
    mark = max(0, round(BAR_WIDTH * limit) - start - length) if limit <= 1 else -1
    is_nearly_late = report.seconds > NEARLY_LATE * report.time_limit
    style = "red" if report.error else "yellow" if is_nearly_late else "green"
    return Text.assemble(" " * start, ("█" * length, style), (" " * mark + "┊" if mark >= 0 else "", "dim"))


def _hit_cells(hit: Hit, move: Text) -> tuple[str | Text, ...]:
    return _render_title(hit), _format_score(hit.score), move


def _render_title(hit: Hit) -> Text:
    section = str(hit.chunk.metadata.get("section", "")).removeprefix(hit.origin.title).removeprefix(" > ")
    return Text.assemble(hit.origin.title, (f"  {section}" if section else "", "cyan"))


def _summarize_moves(names: tuple[str, str], moves: Sequence[Move]) -> str:
    both = [move for move in moves if move.before and move.after]
    up, down = (sum(sign * (move.before - move.after) > 0 for move in both) for sign in (1, -1))
    only_counts = (sum(not move.after for move in moves), sum(not move.before for move in moves))
    only = "".join(f", {count} only in {name}" for name, count in zip(names, only_counts, strict=True) if count)
    return f"{len(both)} in both ({up} higher in {names[1]}, {down} lower){only}"
