-- Vectors that a program brings by itself (storage/vector_store), apart from the corpus.

create table vector_stores (
  tenant text collate "C" not null check (tenant <> ''),
  id int generated always as identity,
  name text collate "C" not null check (name <> ''),
  dimension int not null check (dimension > 0),
  created_at timestamptz not null default now(),
  primary key (tenant, id),
  unique (tenant, name)
);

create table stored_vectors (
  tenant text collate "C" not null check (tenant <> ''),
  store int not null,
  id text collate "C" not null check (id <> ''),
  embedding vector not null,
  metadata jsonb not null,
  primary key (tenant, store, id)
);

-- Narrow and typed, as document_values: under row-level security only leakproof operators keep an index.
create table stored_vector_values (
  tenant text collate "C" not null check (tenant <> ''),
  store int not null,
  id text collate "C" not null,
  key text collate "C" not null,
  text_value text collate "C",
  number_value double precision,
  check ((text_value is null) <> (number_value is null))
);
create index stored_vector_values_text on stored_vector_values (tenant, store, key, text_value, id);
create index stored_vector_values_number on stored_vector_values (tenant, store, key, number_value, id);
create index stored_vector_values_id on stored_vector_values (tenant, store, id);
