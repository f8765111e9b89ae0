-- What documents speak of, and what stands together in them: filled where the profile asks for it.

create table entities (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  id uuid not null,                            -- made of the name
  name text collate "C" not null check (name <> ''),  -- as questions are compared with it
  label text not null,                         -- as it was first written
  primary key (tenant, collection, id),
  unique (tenant, collection, name)
);

create table mentions (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  entity uuid not null,
  chunk_id uuid not null,
  document_id uuid not null,
  times int not null check (times > 0),
  primary key (tenant, collection, entity, chunk_id)
);
create index mentions_of_document on mentions (tenant, collection, document_id);

-- By document, so that what it says goes with it; both ways, so that one index leads on from either.
create table relations (
  tenant text collate "C" not null check (tenant <> ''),
  collection int not null,
  source uuid not null,
  target uuid not null check (source <> target),
  document_id uuid not null,
  weight double precision not null check (weight > 0),
  primary key (tenant, collection, source, target, document_id)
);
create index relations_of_document on relations (tenant, collection, document_id);
