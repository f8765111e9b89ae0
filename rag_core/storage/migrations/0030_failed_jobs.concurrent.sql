-- Locks: nothing.
-- The few failed jobs of the last day, which a gauge counts every few seconds. Jobs are kept for years.
create index concurrently if not exists jobs_failed on jobs (finished_at, tenant) where status = 'failed';
