-- The questions of experiments: which variant answered, and how. They end with `retention.replies`, like replies.

create table exposures (
  tenant text collate "C" not null check (tenant <> ''),
  answer_id text collate "C" not null check (answer_id <> ''),  -- of `replies`, unless the answer failed
  experiment text collate "C" not null check (experiment <> ''),
  variant text not null check (variant in ('control', 'treatment')),
  share double precision not null check (share between 0 and 1),  -- the intended share of the treatment
  bucket int not null check (bucket >= 0),
  conversation text not null,                                   -- a hash
  seconds double precision not null check (seconds >= 0),
  error text not null,                                          -- the type of the error; empty for an answer
  abstained boolean not null,
  created_at timestamptz not null default now(),
  primary key (tenant, answer_id)
);
create index exposures_by_experiment on exposures (tenant, experiment, created_at);
