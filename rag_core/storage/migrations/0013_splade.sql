-- The lexical index holds the weighted terms of SPLADE beside the words: `kind` is 'words' or 'splade'. Of splade,
-- `analysis` is the model's fingerprint, and `postings` are '<u2' [2, n]: local numbers, weights in steps of 1/8192.

alter table lexical_segments add kind text collate "C" not null default 'words';
alter table lexical_documents add kind text collate "C" not null default 'words';
alter table lexical_postings add kind text collate "C" not null default 'words';

drop index lexical_documents_live, lexical_documents_dead;
create unique index lexical_documents_live on lexical_documents (tenant, collection, document_id, kind) where not dead;
create index lexical_documents_dead on lexical_documents (tenant, collection, kind)
  include (segment_id, first_local, n_chunks, total_length, language) where dead;

alter table lexical_postings drop constraint lexical_postings_pkey,
  add primary key (tenant, collection, kind, term, segment_id);
