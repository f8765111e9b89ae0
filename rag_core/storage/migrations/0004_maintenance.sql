-- The name of the index of one collection's vectors in one space, or with nulls at the end what such names begin with:
-- an index has no tenant column to be found by.
create function vector_index(tenant text, collection int, space int) returns text language sql stable parallel safe
return concat_ws('_', 'vectors_hnsw', left(md5(tenant), 8), collection, space);
