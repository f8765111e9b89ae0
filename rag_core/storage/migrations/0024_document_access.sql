-- Documents that only some groups can read. A view reads as its owner, so the policies of rag_reader do not apply in it: a
-- statement can compare the groups itself, even if a policy is missing. It shows ids and groups, but no content.

create view restricted_documents as select tenant, collection, id, access from documents where access <> '{}';

-- The groups that a request named for a document; null: it named none.

alter table pushed_documents add column access text[];
