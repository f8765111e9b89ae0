-- In which languages' chunks a word of a question is a stop word: segments tell it, where searching reads anyway.

alter table lexical_documents add column language text collate "C" not null default '';  -- that made its terms
alter table lexical_segments add column languages jsonb not null default '{}';           -- chunks by it, as built

update lexical_documents l set language = d.language from documents d
where d.tenant = l.tenant and d.collection = l.collection and d.id = l.document_id and not l.dead;
update lexical_segments s set languages = f.languages from (
  select tenant, collection, segment_id, jsonb_object_agg(language, n_chunks) as languages
  from (select tenant, collection, segment_id, language, sum(n_chunks) as n_chunks
    from lexical_documents group by tenant, collection, segment_id, language) own
  group by tenant, collection, segment_id) f
where f.tenant = s.tenant and f.collection = s.collection and f.segment_id = s.id;

drop index lexical_documents_dead;
create index lexical_documents_dead on lexical_documents (tenant, collection)
  include (segment_id, first_local, n_chunks, total_length, language) where dead;
drop index documents_by_language;
