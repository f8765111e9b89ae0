-- No uri is too long for an index: an entry of a btree holds 2.7 kB. A document's id is the hash of its uri, so that the
-- primary key lets none in twice.

alter table documents drop constraint documents_tenant_collection_uri_key;
alter table sources drop constraint sources_tenant_collection_uri_key;
create unique index sources_by_uri on sources (tenant, collection, md5(uri));
