"""When a worker of Ray may go on with what it has built for a job."""

from dataclasses import replace
from uuid import UUID

from jobs.stages import JobSpec
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.storage.publishing import WriteTarget


def test_a_job_that_is_leased_again_is_other_work() -> None:
    """Else a worker would write with the former lease's fence, and be refused."""
    target = WriteTarget(
        postgres=Postgres("host=nowhere"),
        tenant="t",
        collection=1,
        space=1,
        job=UUID(int=1),
        run=1,
        listed_ns=1,
        fence=1,
    )
    work = JobSpec(settings=load_settings(), target=target, sources={})
    assert work == replace(work, target=replace(target))
    assert len({work, replace(work, target=replace(target)), replace(work, target=replace(target, fence=2))}) == 2
