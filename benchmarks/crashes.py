"""A killed sync and lost rows: is the store right after the next sync?

A sync of a folder is killed when a share of its documents is stored. Then 10 % of the files change, 10 % are deleted
and 5 % are added, and a second sync runs. The stored texts should be those of the files. After that, the chunks of 20
documents are deleted with SQL, and a third sync runs. Syncs use the hashing embedder, which loads no model.

    python -m benchmarks.crashes
    python -m benchmarks.crashes --documents 400
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.corpus import passages
from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.storage.postgres import Postgres

SHARES = (0.4, 0.6, 0.75, 0.9)
LOST_DOCUMENTS = 20
STORED_COUNT = """
select count(*) from documents d join collections c on c.tenant = d.tenant and c.id = d.collection where c.name = %s"""
STORED_TEXTS = """
select d.uri, string_agg(k.text, ' ' order by k.ordinal) from documents d
join collections c on c.tenant = d.tenant and c.id = d.collection
join chunks k on k.tenant = d.tenant and k.collection = d.collection and k.document_id = d.id
where c.name = %s and d.status = 'completed' group by d.uri"""
DELETE_CHUNKS = """
delete from chunks where document_id in (
  select d.id from documents d join collections c on c.tenant = d.tenant and c.id = d.collection
  where c.name = %s order by d.uri limit %s)"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2_000)
    count = parser.parse_args().documents
    print(heading())
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        store = Postgres.open(dsn)
        for share in SHARES:
            folder, collection = scratch / f"{share}", f"killed-at-{share}"
            write_documents(folder, count)
            stored = kill_sync(store, folder, collection, round(share * count))
            change_documents(folder, count)
            sync(store, folder, collection).wait()
            errors = describe_differences(store, folder, collection)
            print(f"killed with {stored:,} of {count:,} documents stored, changed, synced again: {errors}")
        lose_chunks(store, collection)
        print(f"chunks of {LOST_DOCUMENTS} documents deleted: {describe_differences(store, folder, collection)}")
        sync(store, folder, collection).wait()
        print(f"synced again: {describe_differences(store, folder, collection)}")


def write_documents(folder: Path, count: int) -> None:
    """Writes documents of two passages each, each with its number in it."""
    folder.mkdir()
    texts = passages(2 * count)
    for number in range(count):
        (folder / f"{number}.md").write_text(f"Document{number}x\n\n{texts[2 * number]}\n\n{texts[2 * number + 1]}\n")


def change_documents(folder: Path, count: int) -> None:
    for number in range(0, count, 10):
        (folder / f"{number}.md").write_text(f"Document{number}x\n\nThis text is new.\n")
        (folder / f"{number + 5}.md").unlink()
    for number in range(count, count + count // 20):
        (folder / f"{number}.md").write_text(f"Document{number}x\n\nThis file is new.\n")


def sync(store: Postgres, folder: Path, collection: str) -> "subprocess.Popen[bytes]":
    options = ["--collection", collection, "--runner", "inline", "--quiet", "--set", "embedding.type=hashing"]
    command = [sys.executable, "-m", "rag_cli", "ingest", str(folder), "--store", store.dsn, *options]
    return subprocess.Popen(command, start_new_session=True)


def kill_sync(store: Postgres, folder: Path, collection: str, documents: int) -> int:
    """Kills a sync as soon as this number of documents is stored. Returns the number that it left."""
    process = sync(store, folder, collection)
    while count_stored(store, collection) < documents and process.poll() is None:
        time.sleep(0.01)
    if process.poll() is not None:
        raise SystemExit("the sync ended before it could be killed: use more --documents")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return count_stored(store, collection)


def lose_chunks(store: Postgres, collection: str) -> None:
    with store.connect("rag_worker") as connection:
        connection.execute(DELETE_CHUNKS, (collection, LOST_DOCUMENTS))


def count_stored(store: Postgres, collection: str) -> int:
    with store.connect("rag_worker") as connection:
        ((count,),) = connection.execute(STORED_COUNT, (collection,)).fetchall()
    return int(count)


def stored_texts(store: Postgres, collection: str) -> Mapping[str, str]:
    """The text of each stored document's chunks, by file name."""
    with store.connect("rag_worker") as connection:
        rows = connection.execute(STORED_TEXTS, (collection,)).fetchall()
    return {uri.rpartition("/")[2]: text for uri, text in rows}


def describe_differences(store: Postgres, folder: Path, collection: str) -> str:
    """The numbers of documents that are missing, that should be deleted, and whose text is not the file's."""
    stored = stored_texts(store, collection)
    files = {file.name: file.read_text().split() for file in folder.iterdir()}
    wrong = [name for name in files.keys() & stored.keys() if stored[name].split() != files[name]]
    missing, deleted = files.keys() - stored.keys(), stored.keys() - files.keys()
    return f"{len(missing)} missing, {len(deleted)} not deleted, {len(wrong)} with another text"


if __name__ == "__main__":
    main()
