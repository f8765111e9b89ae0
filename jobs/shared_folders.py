"""The rule for local folders on a cluster of several nodes: every node must see the same files."""

from collections.abc import Iterable, Sequence

from jobs.cluster_nodes import Answer, Node, run_on_nodes
from jobs.source_samples import Sample, is_local, take_sample
from rag_core.errors import UnsharedFolderError
from rag_core.protocols import Source

ATTEMPTS = 2
"""The number of times that a folder is compared. A file can change between the samples of two nodes."""
MAX_NAMED_NODES = 5


def check_folders(sources: Iterable[Source], nodes: Sequence[Node]) -> None:
    """Raises UnsharedFolderError if a node that runs tasks does not see the files of a local source as this process."""
    workers = [node for node in nodes if node.runs_tasks]
    for source in filter(is_local, sources):
        for _ in range(ATTEMPTS):
            differing = find_differing_nodes(source, workers)
            if not differing:
                break
        else:
            raise UnsharedFolderError(
                f"source {source.uri} is a local folder that differs on {len(differing)} of {len(workers)} nodes: "
                f"{'; '.join(differing[:MAX_NAMED_NODES])}; mount the folder at the same path on these nodes, name a "
                "bucket instead, or pass --shared (ingestion.shared_folders) if it is a mount that lists late"
            )


def find_differing_nodes(source: Source, nodes: Sequence[Node]) -> list[str]:
    """A line for each node that does not see the source as this process does."""
    expected = take_sample(source)
    answers = run_on_nodes(take_sample, [source], nodes)
    return sorted(f"{answer.node.name}: {reason}" for answer in answers if (reason := compare_sample(answer, expected)))


def compare_sample(answer: Answer, expected: Sample) -> str:
    """The difference between the files of a node and those of this process, or an empty string."""
    if answer.error:
        return answer.error
    if answer.value.entries != expected.entries:
        return f"{answer.value.entries} files, not {expected.entries}"
    return "" if answer.value == expected else "files with other names, sizes or times"
