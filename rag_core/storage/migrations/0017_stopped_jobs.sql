-- What a cancelled job did not come to is cancelled, and not failed. A retry of the job still processes it.

alter table job_items
  drop constraint job_items_status_check,
  add constraint job_items_status_check
    check (status in ('queued', 'completed', 'same', 'failed', 'skipped', 'quarantined', 'deleted', 'cancelled')),
  add constraint job_items_cancelled_check check (status <> 'cancelled' or reason is not null);

-- Jobs of the queue run in turns, so that a large one of one tenant does not hold up a small one of another.

alter table jobs
  add size bigint,                             -- documents still to process; null before the first listing of sources
  add leased_at timestamptz,                   -- the beginning of its last turn
  add worked_seconds double precision not null default 0;  -- in earlier turns
create index jobs_by_lease on jobs (tenant, leased_at) where leased_at is not null;

-- When the stages of a document began and ended: {"read": [1764038492.1, 1764038492.3]}, in seconds since 1970.
alter table job_items add column times jsonb not null default '{}';
