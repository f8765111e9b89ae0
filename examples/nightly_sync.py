"""Syncs folders and buckets, and ends with exit code 1 if a document failed: a job for cron or a Kubernetes CronJob.

Example: python examples/nightly_sync.py handbook demo/corpus
"""

import sys

from rag_core import open_knowledge_base
from rag_core.errors import RagError


def main(collection: str, *sources: str) -> int:
    try:
        with open_knowledge_base() as knowledge:
            report = knowledge.ingest(*sources, collection=collection)
    except RagError as error:
        print(f"{collection} was not synced: {error}", file=sys.stderr)
        return error.exit_code
    counts = ", ".join(f"{count} {status}" for status, count in report.documents.items() if count)
    print(f"{collection}: {counts or 'nothing has changed'}, {report.chunks['stored']} chunks stored")
    for failure in report.failures:
        print(f"{failure['uri']}: {failure['stage']}: {failure['reason']}", file=sys.stderr)
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
