-- Which languages a collection has: a question is read in each of them.

create index documents_by_language on documents (tenant, collection, language) where n_chunks > 0;
