import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from uuid import UUID

import pytest
from clock import run_on_clock

from rag_core.errors import FilterError, ModelError, StageTimeoutError
from rag_core.stage import HEADROOM, attempt, pause_timeout, recording, stage
from rag_core.types import StageReport

SOON = 0.01


class Work:
    """Takes until it is cancelled, and remembers that it was."""

    cancelled = False

    async def __call__(self) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return "done"


async def failing() -> str:
    raise ModelError("no weights")


def summarize(reports: list[StageReport]) -> list[tuple[str, str, str]]:
    return [(report.stage, report.parent, report.error) for report in reports]


def test_stages_are_reported_in_the_order_in_which_they_ended() -> None:
    async def work() -> list[StageReport]:
        with recording() as reports:
            async with stage("first"):
                await asyncio.sleep(SOON)
            async with stage("second"):
                pass
        return reports

    reports = run_on_clock(work())
    assert summarize(reports) == [("first", "", ""), ("second", "", "")]
    assert [report.seconds for report in reports] == pytest.approx([SOON, 0.0])


def test_a_stage_within_another_names_it_as_its_parent() -> None:
    async def work() -> list[StageReport]:
        with recording() as reports:
            async with stage("retrieve"):
                async with stage("dense"), stage("embed"):
                    pass
                async with stage("bm25"):
                    pass
            async with stage("pack"):
                pass
        return reports

    assert summarize(run_on_clock(work())) == [
        ("embed", "dense", ""),
        ("dense", "retrieve", ""),
        ("bm25", "retrieve", ""),
        ("retrieve", "", ""),
        ("pack", "", ""),
    ]


def test_stages_that_run_side_by_side_have_the_same_parent() -> None:
    async def leg(name: str, seconds: float) -> None:
        async with stage(name):
            await asyncio.sleep(seconds)

    async def work() -> list[StageReport]:
        with recording() as reports:
            async with stage("hybrid"):
                await asyncio.gather(leg("slow", 3 * SOON), leg("fast", SOON))
        return reports

    assert summarize(run_on_clock(work())) == [("fast", "hybrid", ""), ("slow", "hybrid", ""), ("hybrid", "", "")]


def test_a_stage_that_runs_out_of_time_is_cancelled_with_the_work_below_it() -> None:
    slow = Work()

    async def work() -> list[StageReport]:
        with recording() as reports:
            with pytest.raises(StageTimeoutError) as raised:
                async with stage("rerank", timeout=SOON):
                    await slow()
            assert (raised.value.stage, raised.value.time_limit) == ("rerank", SOON)
            assert str(raised.value) == "rerank took longer than 0.010 s"
        return reports

    reports = run_on_clock(work())
    assert slow.cancelled
    assert summarize(reports) == [("rerank", "", "timeout after 0.010 s")]


def test_a_stage_below_one_that_runs_out_of_time_did_not_go_well() -> None:
    async def work() -> list[StageReport]:
        with recording() as reports, pytest.raises(StageTimeoutError, match="outer took longer"):
            async with stage("outer", timeout=SOON), stage("inner"):
                await asyncio.sleep(60)
        return reports

    assert summarize(run_on_clock(work())) == [("inner", "outer", "cancelled"), ("outer", "", "timeout after 0.010 s")]


def test_all_stages_share_the_deadline_of_the_recording() -> None:
    slow = Work()

    async def work() -> list[StageReport]:
        with recording(timeout=3 * SOON) as reports:
            async with stage("first", timeout=60):
                await asyncio.sleep(SOON)
            with pytest.raises(StageTimeoutError) as raised:
                async with stage("second", timeout=60):
                    await slow()
            assert raised.value.time_limit == pytest.approx(2 * SOON)
        return reports

    reports = run_on_clock(work())
    assert slow.cancelled
    assert reports[1].error == "timeout after 0.020 s"


def test_a_stage_that_begins_after_the_deadline_is_cancelled_at_its_first_wait() -> None:
    slow = Work()

    async def work() -> list[StageReport]:
        with recording(timeout=0) as reports:
            assert await attempt("late", slow(), otherwise="skipped") == "skipped"
        return reports

    assert [report.stage for report in run_on_clock(work())] == ["late"]
    assert slow.cancelled


def test_an_error_with_a_name_is_reported_and_raised() -> None:
    async def work() -> list[StageReport]:
        with recording() as reports, pytest.raises(ModelError):
            async with stage("embed"):
                await failing()
        return reports

    assert summarize(run_on_clock(work())) == [("embed", "", "no weights")]


def test_a_timeout_of_something_else_is_not_called_the_stages() -> None:
    async def work() -> list[StageReport]:
        with recording() as reports, pytest.raises(TimeoutError, match="of a socket"):
            async with stage("fetch"):
                raise TimeoutError("of a socket")
        return reports

    assert [report.stage for report in run_on_clock(work())] == ["fetch"]


def test_an_attempt_gives_the_works_own_result_when_it_goes_well() -> None:
    async def work() -> list[StageReport]:
        async def answer() -> str:
            return "answer"

        with recording() as reports:
            assert await attempt("answer", answer(), otherwise="nothing") == "answer"
        return reports

    assert summarize(run_on_clock(work())) == [("answer", "", "")]


@pytest.mark.parametrize(("work", "error"), [(failing, "no weights"), (Work(), "timeout after 0.010 s")])
def test_an_attempt_that_fails_degrades_and_is_reported(work: Callable[[], Awaitable[str]], error: str) -> None:
    async def request() -> list[StageReport]:
        with recording() as reports:
            assert await attempt("rerank", work(), otherwise="as fused", timeout=SOON) == "as fused"
        return reports

    assert summarize(run_on_clock(request())) == [("rerank", "", error)]


def test_an_attempt_does_not_hide_a_bug() -> None:
    async def bug() -> str:
        return str(1 / 0)

    async def work() -> list[StageReport]:
        with recording() as reports, pytest.raises(ZeroDivisionError):
            await attempt("rerank", bug(), otherwise="")
        return reports

    run_on_clock(work())


def test_after_a_recording_nothing_is_recorded_and_nothing_has_a_deadline() -> None:
    async def work() -> list[StageReport]:
        with recording(timeout=0) as reports:
            pass
        async with stage("outside"):
            await asyncio.sleep(0)
        return reports

    assert run_on_clock(work()) == []


def test_a_recording_is_reset_also_when_its_request_failed() -> None:
    async def work() -> list[StageReport]:
        with recording() as outer:
            with pytest.raises(ModelError), recording() as inner:
                async with stage("inner"):
                    await failing()
            async with stage("outer"):
                pass
        assert summarize(inner) == [("inner", "", "no weights")]
        return outer

    assert summarize(run_on_clock(work())) == [("outer", "", "")]


def test_concurrent_requests_do_not_see_each_others_reports() -> None:
    async def request(name: str, seconds: float) -> list[StageReport]:
        with recording() as reports:
            async with stage(f"{name} 1"):
                await asyncio.sleep(seconds)
            async with stage(f"{name} 2"):
                await asyncio.sleep(seconds)
        return reports

    async def work() -> list[list[StageReport]]:
        return await asyncio.gather(request("a", SOON), request("b", SOON / 2))

    first, second = run_on_clock(work())
    assert summarize(first) == [("a 1", "", ""), ("a 2", "", "")]
    assert summarize(second) == [("b 1", "", ""), ("b 2", "", "")]


def test_a_report_keeps_the_ranking_that_its_stage_was_given() -> None:
    first, second = UUID(int=1), UUID(int=2)

    async def rank() -> list[UUID]:
        return [second, first]

    async def work() -> list[StageReport]:
        with recording() as reports:
            async with stage("dense") as report:
                report.ranking = (first, second)
            await attempt("rerank", rank(), otherwise=[], ranking=lambda ids: ids)
            await attempt("late", Work()(), otherwise="", timeout=SOON)
        return reports

    assert [report.ranking for report in run_on_clock(work())] == [(first, second), (second, first), ()]


def test_a_usage_error_is_raised_from_an_attempt() -> None:
    async def wrong() -> str:
        raise FilterError("no such operator")

    async def work() -> list[StageReport]:
        with recording() as reports:
            await attempt("dense", wrong(), otherwise="")
        return reports

    with pytest.raises(FilterError):
        run_on_clock(work())


def test_waiting_costs_a_stage_none_of_its_own_time() -> None:
    async def work() -> list[StageReport]:
        with recording() as reports:
            async with stage("dense", timeout=0.2):
                with pause_timeout() as remaining:
                    await asyncio.sleep(0.4)
                assert 0 < remaining <= 0.2
        return reports

    assert summarize(run_on_clock(work())) == [("dense", "", "")]


def test_after_waiting_a_stage_has_what_it_had_left() -> None:
    async def work() -> list[StageReport]:
        async with stage("dense", timeout=SOON):
            with pause_timeout():
                pass
            await asyncio.sleep(60)
        return []

    with pytest.raises(StageTimeoutError):
        run_on_clock(work())


def test_waiting_ends_with_the_deadline() -> None:
    async def work() -> list[StageReport]:
        with recording(timeout=SOON):
            async with stage("dense", timeout=30):
                with pause_timeout():
                    await asyncio.sleep(60)
        return []

    with pytest.raises(StageTimeoutError):
        run_on_clock(work())


def test_a_stage_ends_before_the_enclosing_one_which_continues_without_it() -> None:
    slow = Work()

    async def work() -> list[StageReport]:
        with recording(timeout=60, limits={"retrieve": 0.2, "rerank": 1.4}) as reports:
            async with stage("retrieve"):
                assert await attempt("rerank", slow(), otherwise="as fused") == "as fused"
        return reports

    rerank, retrieve = run_on_clock(work())
    assert slow.cancelled
    assert (rerank.stage, rerank.error_type, retrieve.error) == ("rerank", "StageTimeoutError", "")
    assert rerank.time_limit < retrieve.time_limit


def test_a_stage_ends_before_the_one_around_it_also_across_one_without_a_limit() -> None:
    async def work() -> list[StageReport]:
        with recording(limits={"retrieve": 0.2}) as reports:
            async with stage("retrieve"), stage("signals"):
                assert await attempt("rerank", Work()(), otherwise="as fused", timeout=60) == "as fused"
        return reports

    assert [report.error_type for report in run_on_clock(work())] == ["StageTimeoutError", "", ""]


def test_a_stage_that_begins_when_the_one_around_it_has_no_time_left_has_none() -> None:
    async def work() -> list[StageReport]:
        with recording() as reports:
            async with stage("retrieve", timeout=HEADROOM / 2):
                assert await attempt("rerank", Work()(), otherwise="as fused", timeout=60) == "as fused"
        return reports

    assert run_on_clock(work())[0].time_limit == 0


def test_the_deadline_ends_a_stage_no_earlier_than_the_one_around_it() -> None:
    async def work() -> list[StageReport]:
        with recording(timeout=HEADROOM / 2, limits={"retrieve": 1.0}) as reports, suppress(StageTimeoutError):
            async with stage("retrieve"):
                await attempt("bm25", Work()(), otherwise="nothing", timeout=0.5)
        return reports

    assert [report.time_limit for report in run_on_clock(work())] == [HEADROOM / 2] * 2


def test_waiting_ends_before_the_stage_around() -> None:
    async def leg() -> str:
        with pause_timeout():
            await asyncio.sleep(60)
        return "found"

    async def work() -> list[StageReport]:
        with recording(timeout=60) as reports:
            async with stage("retrieve", timeout=0.1):
                assert await attempt("dense", leg(), otherwise="nothing", timeout=0.05) == "nothing"
        return reports

    assert summarize(run_on_clock(work()))[1] == ("retrieve", "", "")
