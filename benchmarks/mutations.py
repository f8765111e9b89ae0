"""Damaged copies of files: what their ingestion says about them, and whether text came in that no file contains.

Each file of the folders is read as it is, and in eight damaged copies: with one per cent of its bytes changed, cut at
a quarter, half and three quarters of its length, under two wrong suffixes, in a zip archive in another one, and behind
512 bytes of zeros. The copies are listed and read by a source, and parsed in the sandbox.

A copy ends as `completed`, `failed` or `skipped`. `foreign` counts completed copies whose text is not the original's:
of their word triples more are missing in the original than the damage explains. The damage explains three triples and
two per cent, and for the changed bytes of a text format the share of triples that they hit. `lost` counts completed
copies without a flag that hold less than half of what a whole or a cut file should hold.

    python -m benchmarks.mutations FOLDER [FOLDER ...]
"""

import argparse
import random
import re
import resource
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import uuid4

from benchmarks.archives import zip_bytes
from benchmarks.machine import heading
from rag_core.config import Settings
from rag_core.parsing.flags import FLAGS
from rag_core.settings import load_settings
from rag_core.types import Draft
from rag_core.wiring.ingestion import build_preparation, open_files_source

CHANGED = "1 % changed"
CHANGED_SHARE = 0.01
EXPLAINED_SHARE, EXPLAINED_TRIPLES = 0.02, 3
CUTS = (0.25, 0.5, 0.75)
TRIPLE = 3
TEXT_SUFFIXES = {".adoc", ".asciidoc", ".csv", ".html", ".md", ".nxml", ".txt", ".xml"}
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclass(frozen=True)
class Outcome:
    """What became of one copy. `foreign` is the share of its word triples that the original does not have.

    `explained` is the share that the damage explains, `kept` the share of the original's words that the copy holds.
    """

    status: str
    name: str = ""
    mutation: str = ""
    reason: str = ""
    foreign: float = 0.0
    explained: float = EXPLAINED_SHARE
    kept: float = 0.0
    flags: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def is_foreign(self) -> bool:
        return self.status == "completed" and self.foreign > self.explained

    @property
    def is_lost(self) -> bool:
        expected = float(self.mutation.removeprefix("cut at ")) if self.mutation.startswith("cut at ") else 1.0
        return self.status == "completed" and not self.flags and self.kept < expected / 2


Mutation = Callable[[str, bytes, random.Random], tuple[str, bytes]]


def change_bytes(name: str, body: bytes, rng: random.Random) -> tuple[str, bytes]:
    changed = bytearray(body)
    for position in rng.sample(range(len(body)), max(1, int(len(body) * CHANGED_SHARE))):
        changed[position] ^= rng.randrange(1, 256)
    return name, bytes(changed)


def cut(share: float, name: str, body: bytes, _rng: random.Random) -> tuple[str, bytes]:
    return name, body[: int(len(body) * share)]


def rename(suffixes: Sequence[str], name: str, body: bytes, rng: random.Random) -> tuple[str, bytes]:
    suffix = rng.choice([suffix for suffix in suffixes if suffix != Path(name).suffix.lower()])
    return Path(name).stem + suffix, body


def zip_twice(name: str, body: bytes, _rng: random.Random) -> tuple[str, bytes]:
    return "outer.zip", zip_bytes({"inner.zip": zip_bytes({name: body})})


def add_zeros(name: str, body: bytes, _rng: random.Random) -> tuple[str, bytes]:
    return name, bytes(512) + body


MUTATIONS: Mapping[str, Mutation] = {
    "whole": lambda name, body, _rng: (name, body),
    CHANGED: change_bytes,
    **{f"cut at {share}": partial(cut, share) for share in CUTS},
    "as text": partial(rename, (".txt", ".md", ".csv", ".log")),
    "as package": partial(rename, (".pdf", ".docx", ".xlsx", ".doc", ".rtf")),
    "zipped twice": zip_twice,
    "zeros before": add_zeros,
}
"""The changes by their names. Each takes the name of a file and its bytes, and returns both as changed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="also print each foreign and each lost copy")
    arguments = parser.parse_args()
    print(heading())
    files = sorted(path for folder in arguments.folders for path in folder.rglob("*") if path.is_file())
    settings = load_settings(None, "default", environment={})
    outcomes = [outcome for path in files for outcome in mutate_file(path, settings, arguments.seed)]
    _report(outcomes)
    if arguments.list:
        for outcome in outcomes:
            if outcome.is_foreign or outcome.is_lost:
                print(outcome)


def mutate_file(path: Path, settings: Settings, seed: int) -> Iterator[Outcome]:
    """Yields the outcome of each copy; nothing for a file that cannot be read as it is."""
    body = path.read_bytes()
    original = " ".join(draft.document.text for draft in _ingest(settings, path.name, body) if draft.document)
    words = _read_words(original)
    if not words:
        return
    triple_bytes = TRIPLE * len(body) / len(words)
    hit_share = 1 - (1 - CHANGED_SHARE) ** triple_bytes
    for mutation, change in MUTATIONS.items():
        name, changed = change(path.name, body, random.Random(f"{seed} {path.name} {mutation}"))
        is_hit = mutation == CHANGED and path.suffix.lower() in TEXT_SUFFIXES
        started = time.perf_counter()
        drafts = _ingest(settings, name, changed)
        seconds = time.perf_counter() - started
        explained = EXPLAINED_TRIPLES / len(words) + EXPLAINED_SHARE + (hit_share if is_hit else 0)
        yield replace(_compare(drafts, words, explained), name=path.name, mutation=mutation, seconds=seconds)


def _ingest(settings: Settings, name: str, body: bytes) -> list[Draft]:
    """The drafts of all documents of a file, read, parsed, scanned and split."""
    with TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(body)
        source = open_files_source(settings, folder)
        drafts = [Draft(id=uuid4(), source=0, entry=entry, recipe="") for entry in source.listing()]
        return list(build_preparation(settings, {0: source})(drafts))


def _compare(drafts: Sequence[Draft], words: Sequence[str], explained: float) -> Outcome:
    """The outcome of a copy. Several documents of one copy count as one text; one failure among them as the outcome."""
    failure = next((draft.failure for draft in drafts if draft.failure), None)
    if failure or not drafts:
        status, reason = (failure.status, failure.reason) if failure else ("absent", "not listed")
        return Outcome(status=status, reason=reason)
    documents = [draft.document for draft in drafts if draft.document]
    found = [word for document in documents for word in _read_words(document.text)]
    known = set(_triples(words))
    foreign = sum(triple not in known for triple in _triples(found)) / max(1, len(found) - TRIPLE + 1)
    kept = (Counter(words) & Counter(found)).total() / len(words)
    flag_lists = [flags for document in documents if isinstance(flags := document.metadata.get(FLAGS), list)]
    flags = sorted({flag for flags in flag_lists for flag in flags})
    return Outcome(status="completed", foreign=foreign, explained=explained, kept=kept, flags=tuple(flags))


def _read_words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _triples(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return zip(*(words[first:] for first in range(TRIPLE)), strict=False)


def _report(outcomes: Sequence[Outcome]) -> None:
    by_mutation: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_mutation[outcome.mutation].append(outcome)
    columns = ("completed", "flagged", "failed", "skipped", "foreign", "lost")
    print(f"{'copies':16}" + "".join(f"{column:>11}" for column in columns) + f"{'slowest':>11}")
    for mutation, group in by_mutation.items():
        counts = _count(group)
        slowest = max(outcome.seconds for outcome in group)
        print(f"{mutation:16}" + "".join(f"{counts[column]:>11}" for column in columns) + f"{slowest:>9.1f} s")
    reasons = Counter(
        (outcome.status, _NUMBER.sub("N", outcome.reason)) for outcome in outcomes if outcome.status != "completed"
    )
    print(f"\n{len(outcomes)} copies; reasons:")
    for (status, reason), count in reasons.most_common():
        print(f"{count:6} {status}: {reason}")
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(f"largest parser process: {peak_mb:.0f} MiB")


def _count(outcomes: Iterable[Outcome]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        counts[outcome.status] += 1
        counts["flagged"] += bool(outcome.flags)
        counts["foreign"] += outcome.is_foreign
        counts["lost"] += outcome.is_lost
    return counts


if __name__ == "__main__":
    main()
