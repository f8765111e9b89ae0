-- Which chunks a segment numbers: their ids, 16 bytes each, by local number. Readers keep them, as they keep postings, and
-- need no lookup from numbers to ids and back. Where a dead document stood when this was added, there are zeros.

alter table lexical_segments add column chunk_ids bytea not null default '';
alter table lexical_segments alter chunk_ids set storage external;  -- random bits

update lexical_segments s set chunk_ids = f.chunk_ids from (
  select l.tenant, l.collection, l.segment_id,
    string_agg(coalesce(uuid_send(c.id), decode(repeat('00', 16), 'hex')), '' order by l.first_local + n) as chunk_ids
  from lexical_documents l cross join generate_series(0, l.n_chunks - 1) n
  left join chunks c on c.tenant = l.tenant and c.collection = l.collection and c.document_id = l.document_id
    and c.ordinal = n and not l.dead
  group by l.tenant, l.collection, l.segment_id) f
where f.tenant = s.tenant and f.collection = s.collection and f.segment_id = s.id;

alter table lexical_segments alter chunk_ids drop default;
