-- Posting lists of up to 8 kB stay in their row: a question reads them with it, and not by a second index.

alter table lexical_postings set (toast_tuple_target = 8160);
