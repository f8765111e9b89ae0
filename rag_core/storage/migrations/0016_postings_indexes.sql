-- Posting lists cost less. Those of up to 8 kB stay in their row: a question reads them with it, and not by a second
-- index. The indexes have no more columns than tell rows apart, for the thousands that a publish adds: ids of
-- collections and of segments are one tenant's only.

alter table lexical_postings set (toast_tuple_target = 8160);
alter table lexical_postings drop constraint lexical_postings_pkey, add primary key (collection, term, kind, segment_id);
drop index lexical_postings_of_segment;
create index lexical_postings_of_segment on lexical_postings (collection, segment_id);
