-- The page on which a chunk begins, for filters; null where its format has none.

alter table chunks add column page int;
create index chunks_by_page on chunks (tenant, collection, page) where page is not null;
