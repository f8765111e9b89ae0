"""Use, cost and quality by day."""

from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from uuid import UUID

import pytest
from fakes.replies import rated_reply

from rag_core.errors import UsageError
from rag_core.evaluation.usage import Price, price_reply, read_prices, summarize_days

REPLY = rated_reply(
    "ans_1",
    profile="gpu",
    pipeline_version="gpu:v1+0",
    model="small",
    cited_ids=(UUID(int=1),),
    confidence=0.5,
    prompt_tokens=3_000,
    completion_tokens=1_000,
    cached_tokens=1_000,
)
SMALL = Price(prompt=1.0, completion=4.0, cached=0.5)


def test_a_reply_costs_the_price_of_its_tokens() -> None:
    assert price_reply(REPLY, {"small": SMALL}) == pytest.approx((2_000 * 1.0 + 1_000 * 0.5 + 1_000 * 4.0) / 1e6)
    assert price_reply(REPLY, {"small": Price(prompt=1.0, completion=4.0)}) == pytest.approx(0.007)


def test_a_model_without_a_price_has_no_cost_and_no_model_costs_nothing() -> None:
    assert price_reply(REPLY, {}) is None
    assert price_reply(replace(REPLY, model=""), {}) == 0


def test_the_answers_of_a_day_are_summed_up() -> None:
    liked = replace(REPLY, id="ans_2", rating=1, stars=5, seconds=3.0, signals=("copied",), confidence=None)
    refused = replace(REPLY, id="ans_3", question="Why?", finish="abstained", verdict="unchecked", cited_ids=())
    (day,) = summarize_days([REPLY, liked, refused], {"small": SMALL})
    assert (day.key.day, day.answers, day.questions) == (date(2026, 11, 26), 3, 2)
    assert (day.abstained, day.cited, day.judged, day.supported) == (1, 2, 2, 2)
    assert (day.thumbs_up, day.thumbs_down, day.mean_stars, day.mean_confidence) == (1, 0, 5.0, 0.5)
    assert (day.p50_seconds, day.prompt_tokens, day.cost) == (1.0, 9_000, pytest.approx(0.0195))
    assert day.signals == {"copied": 1}


def test_days_and_pipelines_are_apart() -> None:
    later = replace(REPLY, created_at=datetime(2026, 11, 27, tzinfo=UTC))
    changed = replace(REPLY, pipeline_version="gpu:v1+1")
    days = summarize_days([later, changed, REPLY], {})
    assert [(day.key.day.day, day.key.pipeline_version) for day in days] == [
        (26, "gpu:v1+0"),
        (26, "gpu:v1+1"),
        (27, "gpu:v1+0"),
    ]


@pytest.mark.parametrize("text", ["small: {prompt: -1, completion: 1}", "small: 3", "- a", "{"])
def test_a_table_of_prices_that_breaks_a_rule_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"prices\.yaml"):
        read_prices(path)
