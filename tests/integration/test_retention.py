"""Rows that end with the days of their kind."""

import pytest
from drafts import TENANT, draft
from targets import publish, superuser
from test_tenants import fill
from trees import violations

from rag_core.config import RetentionSettings
from rag_core.storage.postgres import Postgres
from rag_core.storage.retention import DELETIONS, delete_old_rows

pytestmark = pytest.mark.postgres

AGE = """
update rag.jobs set finished_at = now() - interval '8 days', status = case when pushes then 'failed' else status end,
  started_at = coalesce(started_at, now())
where status = 'completed' or pushes"""


def test_every_kind_has_days() -> None:
    assert RetentionSettings().model_dump().keys() >= DELETIONS.keys() - {"rate limits"}


def test_events_and_uploads_end_before_their_jobs(store: Postgres) -> None:
    fill(store)
    publish(store, draft("file:///b.md", "new"))
    assert delete_old_rows(store, TENANT, RetentionSettings().model_dump()) == []
    with superuser(store) as connection:
        connection.execute(AGE)
    changes = delete_old_rows(store, TENANT, RetentionSettings().model_dump())
    assert [change.subject.split()[1] for change in changes] == ["uploads", "events"]
    assert violations(store) == []


def test_ended_jobs_are_kept_unless_they_have_days(store: Postgres) -> None:
    publish(store, draft("file:///a.md", "one"))
    publish(store, draft("file:///b.md", "two"))
    with superuser(store) as connection:
        connection.execute(AGE)
    assert [change.subject for change in delete_old_rows(store, TENANT, {"jobs": 0})] == []
    (change,) = delete_old_rows(store, TENANT, {"jobs": 7})
    assert change.subject == "1 jobs"  # the last completed one of the collection stays
    assert delete_old_rows(store, TENANT, {"jobs": 7}) == []
    assert violations(store) == []
