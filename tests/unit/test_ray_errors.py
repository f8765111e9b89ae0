"""Errors that Ray raises, as users read them."""

import logging

import pytest
from ray.data.exceptions import ExecutionTimeoutError
from ray.exceptions import ActorDiedError, ObjectLostError, OutOfMemoryError, RayTaskError

from jobs.ray_connection import is_start_failure, is_unnamed_failure
from jobs.ray_errors import translate_ray_errors
from rag_core.errors import ClusterError, FencedError, ModelError, StoppedError


def in_a_task(cause: Exception) -> RayTaskError:
    traceback = f"Traceback (most recent call last):\n  ...\n{type(cause).__module__}.{type(cause).__name__}: {cause}"
    return RayTaskError("Write()", traceback, cause).as_instanceof_cause()


def dead_actor(raised: str) -> ActorDiedError:
    return ActorDiedError(
        RayTaskError("Embed.__init__", f"Traceback (most recent call last):\n  ...\n{raised}", Exception())
    )


def test_a_workers_failure_is_reported_as_it_was_raised() -> None:
    with pytest.raises(FencedError) as caught, translate_ray_errors():
        raise in_a_task(FencedError("job 7 was cancelled"))
    assert (type(caught.value), str(caught.value)) == (FencedError, "job 7 was cancelled")


def test_the_reason_why_an_actor_could_not_begin_is_reported_by_its_name() -> None:
    with pytest.raises(ModelError, match=r"^no such model:\nthe file is missing$"), translate_ray_errors():
        raise dead_actor("rag_core.errors.ModelError: no such model:\nthe file is missing")


def test_what_ray_lost_by_itself_is_reported_in_one_line() -> None:
    with (
        pytest.raises(ClusterError, match=r"^Ray lost a part of the job: Task was killed[^\n]*$"),
        translate_ray_errors(),
    ):
        raise OutOfMemoryError("Task was killed due to the node running low on memory.\nMemory on the node ...")
    with pytest.raises(ClusterError, match=r"^Ray lost a part of the job: The actor died"), translate_ray_errors():
        raise ActorDiedError
    with pytest.raises(ClusterError, match=r"^Ray lost a part of the job: no progress"), translate_ray_errors():
        raise ExecutionTimeoutError("no progress for 600 s")


def test_an_object_of_a_lost_node_is_lost_by_ray_although_a_task_reports_it() -> None:
    lost = ObjectLostError("00ff", "", "")
    with pytest.raises(ClusterError, match=r"^Ray lost a part of the job: "), translate_ray_errors():
        raise in_a_task(lost)


def test_a_defect_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), translate_ray_errors():
        raise in_a_task(ZeroDivisionError("division by zero"))
    with pytest.raises(ActorDiedError), translate_ray_errors():
        raise dead_actor("ZeroDivisionError: division by zero")


def test_ray_that_starts_too_slowly_raises_a_bare_exception_and_a_defect_another() -> None:
    assert is_start_failure(Exception("The current node timed out during startup."))
    assert is_start_failure(ConnectionError("no such address"))
    assert not is_start_failure(ZeroDivisionError("division by zero"))


@pytest.mark.parametrize(
    ("error", "is_printed"), [(StoppedError("stopped by SIGTERM"), False), (OSError("disk"), True)]
)
def test_ray_data_prints_no_traceback_of_an_error_of_this_program(error: Exception, is_printed: bool) -> None:
    record = logging.makeLogRecord({"msg": "Full stack trace:"})
    assert is_unnamed_failure(record)
    try:
        raise error
    except type(error):
        assert is_unnamed_failure(record) is is_printed
