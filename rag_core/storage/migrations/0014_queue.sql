-- The queue: a job is entered before anybody works on it, and is leased to who does. Jobs of `rag ingest` are running
-- from the beginning; they have no lease, and their fence is 0.

alter table jobs
  add created_at timestamptz not null default now(),
  add request jsonb,                           -- what a queued job was asked for; null where it was none
  add correlation_id text not null default '',
  add traceparent text not null default '',
  add pushes boolean not null default false,   -- whether documents came with the request
  add attempts int not null default 0 check (attempts >= 0),
  add fence bigint not null default 0,         -- raised whenever somebody else takes the job: who has an older one may not write
  add worker text not null default '',         -- who had it last
  add lease_until timestamptz,                 -- null where nobody has it
  add run_at timestamptz not null default now(),  -- not before then
  add idempotency_key text collate "C" not null default '',
  add fingerprint text collate "C" not null default '',
  alter collection drop not null,              -- known when the job begins
  alter started_at drop not null,
  alter started_at drop default,
  drop constraint jobs_status_check,
  add constraint jobs_status_check check (status in ('queued', 'running', 'completed', 'failed', 'cancelled')),
  drop constraint jobs_check,
  add constraint jobs_finished_check check ((status in ('queued', 'running')) = (finished_at is null)),
  add constraint jobs_started_check check (status = 'queued' or started_at is not null),
  add constraint jobs_leased_check check (lease_until is null or finished_at is null);
update jobs set created_at = started_at;

create unique index jobs_by_idempotency_key on jobs (tenant, idempotency_key) where idempotency_key <> '';
create index jobs_open on jobs (run) where status in ('queued', 'running');
create index jobs_by_run on jobs (tenant, run);

-- The bytes that came with a request. They go when their document has come to its end for good.
create table pushed_documents (
  tenant text collate "C" not null check (tenant <> ''),
  job_id uuid not null,
  id text collate "C" not null check (id <> ''),
  uri text not null,
  body bytea not null,
  sha256 bytea not null,
  media_type text not null, title text not null, url text not null,
  metadata jsonb not null,
  pushed_at timestamptz not null default now(),
  primary key (tenant, job_id, id)
);
create index pushed_documents_by_id on pushed_documents (tenant, id);
alter table pushed_documents alter column body set storage external;  -- much of it is compressed already
