-- The lexical index. A segment holds the chunks of some documents, numbered from 0, and is never changed: what a newer
-- publish or a merge replaces is marked dead, or goes with its segment.

create table lexical_segments (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  id bigint generated always as identity,
  n_chunks int not null check (n_chunks between 1 and 65536),    -- as built, dead ones and all
  total_length bigint not null check (total_length >= 0),        -- terms in them
  analysis text collate "C" not null,                            -- what made the terms: others do not meet them
  primary key (tenant, collection, id)
);

-- A document's chunks stand next to each other in their order: chunk `ordinal` has number `first_local + ordinal`.
create table lexical_documents (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  segment_id bigint not null,
  first_local int not null check (first_local >= 0),
  n_chunks int not null check (n_chunks > 0),
  total_length int not null check (total_length >= 0),
  document_id uuid not null,
  version bigint not null,                                       -- the run that wrote it
  dead boolean not null default false,
  primary key (tenant, collection, segment_id, first_local)
);
create unique index lexical_documents_live on lexical_documents (tenant, collection, document_id) where not dead;
create index lexical_documents_dead on lexical_documents (tenant, collection)
  include (segment_id, first_local, n_chunks, total_length) where dead;

create table lexical_postings (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  term text collate "C" not null,
  segment_id bigint not null,
  postings bytea not null,                                       -- '<u2' [3, n]: local numbers, frequencies, chunk lengths
  primary key (tenant, collection, term, segment_id)
);
alter table lexical_postings alter postings set storage external;  -- small numbers of two bytes compress badly
create index lexical_postings_of_segment on lexical_postings (tenant, collection, segment_id);
