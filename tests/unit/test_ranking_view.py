"""What `rag search --explain` and `--compare` draw."""

from io import StringIO
from uuid import UUID, uuid5

import pytest
from rich.console import Console, RenderableType

from rag_cli.ranking_view import comparison_table, hits_table, list_moves, waterfall
from rag_core.retrieval.explanation import explain_hit, ranks_by_stage
from rag_core.types import Chunk, Hit, Origin, StageReport
from rag_core.wire.stages import describe_stages

WIDE_TITLE = "Visitor regulations of the Skerrow tidal power station, with annexes"


def id(name: str) -> UUID:
    return uuid5(UUID(int=0), name)


def hit(name: str, score: float = 0.5, **scores: float) -> Hit:
    chunk = Chunk(id=id(name), document_id=id("document"), ordinal=0, text=name, start=0, end=1)
    return Hit(chunk=chunk, origin=Origin(uri=f"file:///{name}", title=name), score=score, scores=scores)


def ranking_report(stage: str, *names: str) -> StageReport:
    return StageReport(stage=stage, seconds=0.002, ranking=tuple(map(id, names)))


def print_lines(drawing: RenderableType, width: int = 80, coloured: bool = False) -> list[str]:
    file = StringIO()
    colours = "standard" if coloured else None
    Console(file=file, width=width, highlight=False, force_terminal=coloured, color_system=colours).print(drawing)
    return [line.rstrip() for line in file.getvalue().splitlines()]


STAGES = [
    ranking_report("dense", "a", "b"),
    ranking_report("bm25", "b"),
    ranking_report("fuse", "b", "a"),
    ranking_report("rerank", "a", "b"),
]
A = hit("a", dense=0.9, bm25=1.5, fused=0.4, rerank=0.8)


def test_a_hits_way_has_rank_and_score_at_every_step() -> None:
    assert explain_hit(A, ranks_by_stage(STAGES)) == {
        "dense": {"rank": 1, "score": 0.9},
        "bm25": {"rank": None, "score": 1.5},
        "fusion": {"rank": 2, "score": 0.4},
        "rerank": {"rank": 1, "score": 0.8},
    }


def test_a_row_shows_each_steps_rank_and_what_the_reranker_moved() -> None:
    heading, row, other = print_lines(hits_table([A, hit("b", dense=0.5, fused=0.6, rerank=0.7)], STAGES, 80))
    assert heading.split() == ["hit", "dense", "bm25", "fusion", "rerank"]
    assert row.split() == ["1", "a", "1", "0.900", "·", "1.500", "2", "0.400", "1", "0.800", "▲1"]
    assert other.split() == ["2", "b", "2", "0.500", "·", "1", "0.600", "2", "0.700", "▼1"]


@pytest.mark.parametrize("legs", [1, 2, 4])
@pytest.mark.parametrize("width", [80, 120])
def test_long_titles_are_shortened_so_that_a_hit_is_one_line(legs: int, width: int) -> None:
    scores = {**{f"leg{number}": 123.4567 for number in range(legs)}, "fused": -1.25, "rerank": 0.5}
    lines = print_lines(hits_table([hit(WIDE_TITLE, **scores)] * 3, [], width), width)
    assert len(lines) == 4
    assert max(map(len, lines)) <= width
    assert "…" in lines[1]


def test_a_stage_is_drawn_where_it_ran_and_its_limit_where_it_ended() -> None:
    first = StageReport(stage="embed", seconds=0.010, time_limit=0.020)
    second = StageReport(stage="dense", seconds=0.030, started=0.010, parent="search")
    heading, embed, dense = print_lines(waterfall([second, first]))
    start = heading.index("0  ")
    assert heading.endswith("40.0 ms")
    assert embed.startswith("embed")
    assert embed[start:] == "█" * 10 + " " * 10 + "┊"
    assert dense.startswith("  dense")
    assert dense[start:] == " " * 10 + "█" * 30


def test_a_stage_that_failed_says_why_in_red() -> None:
    late = StageReport(stage="bm25", seconds=0.05, time_limit=0.05, error="timeout after 0.050 s")
    lines = print_lines(waterfall([late]), coloured=True)
    assert "\x1b[31m█" in lines[1]
    assert "timeout after 0.050 s" in lines[2]


def test_a_stage_that_was_nearly_late_is_yellow() -> None:
    bars = [StageReport(stage="bm25", seconds=seconds, time_limit=0.05) for seconds in (0.039, 0.041)]
    green, yellow = (print_lines(waterfall([bar]), coloured=True)[1] for bar in bars)
    assert "\x1b[32m█" in green
    assert "\x1b[33m█" in yellow


def test_stages_as_rows_are_in_the_order_in_which_they_began() -> None:
    embed = StageReport(stage="embed", seconds=0.01)
    dense = StageReport(stage="dense", seconds=0.02, started=0.01, time_limit=0.05, ranking=(id("a"),))
    assert [row.stage for row in describe_stages([dense, embed])] == ["embed", "dense"]
    assert [row.model_dump() for row in describe_stages([dense])] == [
        {
            **{"stage": "dense", "parent": "", "began_ms": 10.0, "ms": 20.0, "limit_ms": 50.0},
            **{"error": "", "skipped": "", "figures": {}, "ranked": 1},
        }
    ]
    assert describe_stages([embed])[0].limit_ms is None


def test_two_rankings_show_what_moved_and_what_only_one_has() -> None:
    before, after = [hit("a"), hit("b"), hit("c")], [hit("b"), hit("d"), hit("a")]
    moves = [(move.hit.origin.title, move.before, move.after) for move in list_moves(before, after)]
    assert moves == [("b", 2, 1), ("d", 0, 2), ("a", 1, 3), ("c", 3, 0)]


def test_two_rankings_are_printed_side_by_side() -> None:
    before, after = [hit("a"), hit("b"), hit("c")], [hit("b"), hit("d")]
    heading, first, second, third, summary = print_lines(comparison_table(("default", "gpu"), before, after, 80))
    assert heading.split() == ["default", "score", "gpu", "score"]
    assert first.split() == ["1", "a", "0.500", "only", "b", "0.500", "▲1"]
    assert second.split() == ["2", "b", "0.500", "→1", "d", "0.500", "only"]
    assert third.split() == ["3", "c", "0.500", "only"]
    assert summary == "1 in both (1 higher in gpu, 0 lower), 2 only in default, 1 only in gpu"


def test_two_rankings_fit_a_narrow_terminal() -> None:
    hits = [hit(f"{number} {WIDE_TITLE}") for number in range(12)]
    lines = print_lines(comparison_table(("clinicaltrials", "dailymed"), hits, hits, 80))
    assert len(lines) == 14
    assert max(map(len, lines)) <= 80
