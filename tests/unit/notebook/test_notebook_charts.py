"""The charts: what is drawn, and what their words say."""

import subprocess
import sys
from uuid import UUID

import pytest
from matplotlib.colors import same_color

from rag_core.evaluation.reliability import reliability_bins
from rag_core.evaluation.significance import Estimate
from rag_core.notebook.charts.chart import BLUE, GREY, VERMILION, Chart
from rag_core.notebook.charts.intervals import draw_intervals
from rag_core.notebook.charts.paired_differences import draw_paired_differences
from rag_core.notebook.charts.rank_movement import draw_rank_movement
from rag_core.notebook.charts.reliability_diagram import draw_reliability
from rag_core.notebook.charts.stage_times import draw_stage_times
from rag_core.notebook.charts.topic_drift import draw_topic_drift
from rag_core.types import Answer, Chunk, Hit, Origin, Query, Reply, StageReport, Understanding

pytestmark = pytest.mark.slow  # matplotlib's import takes a second or two

FIRST, SECOND, THIRD = (UUID(int=number) for number in (1, 2, 3))


def make_hit(id: UUID, text: str, scores: dict[str, float]) -> Hit:
    chunk = Chunk(id=id, document_id=id, ordinal=0, text=text, start=0, end=len(text))
    return Hit(chunk=chunk, origin=Origin(uri="file:///keys.md", title="Keys"), score=1.0, scores=scores)


def make_turn(question: str, drift: float | None, is_shift: bool = False) -> Reply:
    understanding = None if drift is None else Understanding(standalone=question, drift=drift, is_shift=is_shift)
    return Reply(query=Query(text=question), standalone=question, answer=Answer(text="."), understanding=understanding)


def lines_of(chart: Chart) -> list[list[float]]:
    return [[float(value) for value in line.get_ydata()] for line in chart.figure.axes[0].lines]


def test_a_chart_is_a_picture_for_notebooks_and_words_elsewhere() -> None:
    chart = draw_stage_times({"parse": 0.25, "embed": 1.5}, "Times")
    png, metadata = chart._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert metadata == {"width": 560}
    assert repr(chart) == "Times: parse 250 ms, embed 1.50 s"


def test_stages_are_drawn_from_top_to_bottom() -> None:
    axes = draw_stage_times({"parse": 0.25, "embed": 1.5}, "Times").figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["parse", "embed"]
    assert axes.yaxis_inverted()


def test_a_hit_moves_from_its_rank_in_each_leg_to_its_final_one() -> None:
    scores = {"dense": 0.5, "bm25": 2.0, "fused": 1.0}
    hits = [make_hit(SECOND, "## Interval\n\nWeekly.", scores), make_hit(FIRST, "Keys", {"dense": 0.4, "fused": 0.5})]
    stages = [
        StageReport(stage="dense", seconds=0.0, ranking=(FIRST, SECOND)),
        StageReport(stage="bm25", seconds=0.0, ranking=(SECOND,)),
        StageReport(stage="fuse", seconds=0.0, ranking=(SECOND, FIRST)),
    ]
    chart = draw_rank_movement(hits, stages, "Movement", depth=2, highlighted=[SECOND])
    assert lines_of(chart)[:2] == [[2, 1, 1], [1, 3, 2]]  # 3: the row below the depth
    colours = [line.get_color() for line in chart.figure.axes[0].lines[:2]]
    assert [same_color(*pair) for pair in zip(colours, (VERMILION, GREY), strict=True)] == [True, True]
    assert repr(chart).splitlines() == [
        "Movement",
        "Keys: Interval: dense 2, bm25 1, fusion 1",
        "Keys: dense 1, bm25 -, fusion 2",
    ]


def test_a_mean_has_the_bounds_of_its_interval() -> None:
    chart = draw_intervals({"hybrid": Estimate(0.9, 0.8, 0.95)}, "Pipelines", "nDCG@10")
    assert repr(chart) == "Pipelines: hybrid 0.900 (0.800 to 0.950)"
    (segments,) = chart.figure.axes[0].collections[0].get_segments()
    assert segments.tolist() == [[pytest.approx(0.8), 0], [pytest.approx(0.95), 0]]


def test_equal_questions_are_counted_and_not_drawn() -> None:
    chart = draw_paired_differences({"worse": -0.2, "equal": 1e-15, "better": 0.5}, "Difference", "nDCG@10")
    axes = chart.figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["better", "worse"]
    assert [same_color(bar.get_facecolor(), BLUE) for bar in axes.patches] == [True, False]
    assert repr(chart) == "Difference: 1 better, 1 worse, 1 equal"


def test_no_difference_makes_an_empty_chart() -> None:
    assert (
        repr(draw_paired_differences({"equal": 0.0}, "Difference", "MRR")) == "Difference: 0 better, 0 worse, 1 equal"
    )


def test_a_group_is_drawn_at_its_confidence_and_its_share_of_right_answers() -> None:
    bins = reliability_bins([0.2, 0.4, 0.8, 0.8], [False, True, True, True], bins=2)
    chart = draw_reliability(bins, "Reliability")
    assert lines_of(chart)[0] == [0, 1]  # the diagonal
    assert lines_of(chart)[1] == [0.5, 1.0]
    assert "0.50 right at confidence 0.30 (2 answers)" in repr(chart)


def test_a_change_of_the_subject_has_its_name_and_the_first_turn_no_distance() -> None:
    turns = [make_turn("Keys?", None), make_turn("Which?", 0.125), make_turn("Lunch?", 0.75, is_shift=True)]
    chart = draw_topic_drift(turns, "Drift")
    assert repr(chart) == "Drift: 'Which?' 0.12, 'Lunch?' 0.75 (new subject)"
    texts = [text.get_text() for text in chart.figure.axes[0].texts]
    assert texts == ["0.12", "0.75  new subject", "nothing to compare with"]


@pytest.mark.parametrize("name", ["rank_movement", "stage_times"])
def test_missing_matplotlib_is_an_error_that_names_the_extra(name: str) -> None:
    program = f"import sys; sys.modules['matplotlib'] = None; import rag_core.notebook.charts.{name}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "rag_core.errors.MissingExtraError: the extra [notebooks] is not installed" in ended.stderr
