-- The answers of gateways, and what people thought of them. Both end with `retention.replies`.

create table replies (
  tenant text collate "C" not null check (tenant <> ''),
  id text collate "C" not null check (id <> ''),  -- the id that the client received
  question text not null,
  standalone text not null,                       -- the question as it was searched
  collection_name text not null,                  -- and no key, because collections can be dropped
  profile text not null,
  pipeline_version text not null,
  model text not null,                            -- empty if no language model wrote the answer
  chunk_ids uuid[] not null,                      -- of the passages, best first
  cited_ids uuid[] not null,
  verdict text not null check (verdict in ('supported', 'partial', 'unsupported', 'unchecked')),
  confidence double precision check (confidence between 0 and 1),
  finish text not null,
  prompt_tokens int not null check (prompt_tokens >= 0),
  completion_tokens int not null check (completion_tokens >= 0),
  cached_tokens int not null check (cached_tokens >= 0),
  seconds double precision not null check (seconds >= 0),
  created_at timestamptz not null default now(),
  primary key (tenant, id)
);
create index replies_by_time on replies (tenant, created_at);

create table feedback (
  tenant text collate "C" not null check (tenant <> ''),
  id uuid not null,
  answer_id text collate "C" not null,
  rating smallint check (rating between -1 and 1),
  stars smallint check (stars between 1 and 5),
  comment text not null,
  corrected_answer text not null,
  signals text[] not null,
  idempotency_key text collate "C" not null default '',
  fingerprint text collate "C" not null default '',
  created_at timestamptz not null default now(),
  primary key (tenant, id),
  foreign key (tenant, answer_id) references replies (tenant, id) on delete cascade
);
create index feedback_by_answer on feedback (tenant, answer_id);
create unique index feedback_by_idempotency_key on feedback (tenant, idempotency_key) where idempotency_key <> '';
