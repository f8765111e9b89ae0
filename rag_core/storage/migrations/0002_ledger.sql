-- What was asked for and what became of it: jobs, one item a document, and events in order.

create table jobs (
  tenant text collate "C" not null check (tenant <> ''),
  id uuid not null,
  run bigint generated always as identity,     -- the version that its documents get: later runs are higher
  collection int not null,
  sources int[] not null,
  profile text not null,
  settings jsonb not null,                     -- frozen: a job ends with the configuration that it began with
  status text collate "C" not null check (status in ('running', 'completed', 'failed', 'cancelled')),
  reason text,
  same int not null,                           -- entries of the listing that needed no work
  seconds jsonb not null default '{}',
  events bigint not null default 0,            -- how many events it has; the last one's number
  started_at timestamptz not null default now(),
  finished_at timestamptz,
  check ((status = 'running') = (finished_at is null)),
  primary key (tenant, id)
);
create index jobs_by_start on jobs (tenant, started_at desc);

create table job_items (
  tenant text collate "C" not null check (tenant <> ''),
  job_id uuid not null,
  document_id uuid not null,
  uri text not null,
  action text collate "C" not null check (action in ('add', 'change', 'delete')),
  status text collate "C" not null check (status in ('queued', 'completed', 'same', 'failed', 'skipped', 'deleted')),
  stage text, reason text, retryable boolean not null default false,
  chunks int not null default 0,               -- stored, of these:
  embedded int not null default 0,
  removed int not null default 0,              -- chunks that went
  seconds jsonb not null default '{}',
  finished_at timestamptz,
  check (status not in ('failed', 'skipped') or reason is not null),
  primary key (tenant, job_id, document_id)
);
create index job_items_by_status on job_items (tenant, job_id, status);

create table job_events (
  tenant text collate "C" not null check (tenant <> ''),
  job_id uuid not null,
  seq bigint not null,
  at timestamptz not null default clock_timestamp(),
  stage text not null,
  status text not null,
  detail jsonb not null,
  primary key (tenant, job_id, seq)
);
