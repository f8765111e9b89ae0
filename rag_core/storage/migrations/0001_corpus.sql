-- The corpus: collections, their sources, documents, chunks, vectors.
-- Every table is keyed by tenant; row-level security is enabled and forced at the end of the last migration's run (schema.py).

create table collections (
  tenant text collate "C" not null check (tenant <> ''),
  id int generated always as identity,
  name text collate "C" not null check (name <> ''),
  space int,                                   -- the embedding space that is searched; null before the first sync
  created_at timestamptz not null default now(),
  primary key (tenant, id),
  unique (tenant, name)
);

create table spaces (
  tenant text collate "C" not null check (tenant <> ''),
  id int generated always as identity,
  fingerprint text collate "C" not null,
  model text not null,
  dimension int not null check (dimension > 0),
  created_at timestamptz not null default now(),
  primary key (tenant, id),
  unique (tenant, fingerprint)
);

create table sources (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  id int generated always as identity,
  uri text collate "C" not null,
  listed_at timestamptz,                       -- when its last listing that completed began
  created_at timestamptz not null default now(),
  primary key (tenant, collection, id),
  unique (tenant, collection, uri)
);

create table documents (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  id uuid not null,
  source int not null,
  uri text collate "C" not null,
  version bigint not null,                     -- the run that wrote it last: an older run changes nothing
  status text collate "C" not null check (status in ('completed', 'failed', 'skipped')),
  stage text, reason text, retryable boolean not null default false,
  size bigint not null, modified_ns bigint not null, changed_ns bigint not null, etag text not null,
  listed_ns bigint not null,
  sha256 bytea not null, recipe text collate "C" not null,
  title text not null, media_type text not null, language text not null,
  metadata jsonb not null,
  access text[] not null default '{}',         -- groups that may read it; empty: everyone of the tenant
  n_chunks int not null,
  indexed_at timestamptz not null default now(),
  check ((status = 'completed') = (reason is null)),
  check (status <> 'completed' or n_chunks > 0),
  primary key (tenant, collection, id),
  unique (tenant, collection, uri)
);
create index documents_of_source on documents (tenant, collection, source);
create index documents_restricted on documents (tenant, collection, id) where access <> '{}';

create table document_texts (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  document_id uuid not null,
  text text not null,
  primary key (tenant, collection, document_id)
);

-- Metadata as filters read it. Narrow and typed: under row-level security only leakproof operators keep an index.
create table document_values (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  document_id uuid not null,
  key text collate "C" not null,
  text_value text collate "C",
  number_value double precision,
  check ((text_value is null) <> (number_value is null))
);
create index document_values_text on document_values (tenant, collection, key, text_value, document_id);
create index document_values_number on document_values (tenant, collection, key, number_value, document_id);
create index document_values_document on document_values (tenant, collection, document_id);

create table chunks (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  id uuid not null,
  document_id uuid not null,
  ordinal int not null check (ordinal >= 0),
  start_offset int not null,
  end_offset int not null,
  prefix text not null,
  text text not null,
  metadata jsonb not null,
  content_hash bytea not null,                 -- of prefix and text: what was embedded
  check (0 <= start_offset and start_offset < end_offset),
  primary key (tenant, collection, id),
  -- deferred: kept chunks change places within one statement
  constraint chunks_numbered unique (tenant, collection, document_id, ordinal) deferrable initially deferred
);

-- Apart from chunks: a vector is never rewritten because its chunk moved, and spaces live side by side.
create table vectors (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  space int not null,
  chunk_id uuid not null,
  document_id uuid not null,
  content_hash bytea not null,
  embedding halfvec not null,
  primary key (tenant, collection, space, chunk_id)
);
create index vectors_of_content on vectors (tenant, space, content_hash);
create index vectors_of_document on vectors (tenant, collection, document_id);
