"""One sync of very wide, very deep and very monotonous files together with 50 small ones.

The table has the documents in the order in which they are ready to be embedded, with the CPU seconds of parsing,
scanning and splitting each, those of the parser's process included, and the seconds since the start of the sync.
Parsing, scanning and splitting can each take `parsing.timeout_s` of CPU time. The largest document is the first, so
every small one waits for all of these. Chunks are measured by the embedding model's tokenizer, but embedded by hashing.

    python -m benchmarks.wide_deep
    python -m benchmarks.wide_deep --share 0.1 --set chunking.type=fixed --only wide.csv
"""

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import psutil

from benchmarks.machine import heading
from benchmarks.scratch import scratch_folder, server_in
from rag_core.ingestion.stages import Preparation
from rag_core.protocols import Source
from rag_core.settings import load_settings
from rag_core.storage.postgres import Postgres
from rag_core.types import Draft
from rag_core.wiring.ingestion import build_inline_runner, build_preparation, build_sync

SMALL_DOCUMENTS = 50
MONOTONOUS = {
    **{"backticks": "`", "brackets": "[", "parentheses": "(", "stars": "*", "underscores": "_", "quotes": ">"},
    **{"pipes": "|", "stops": ".", "list": "- a\n", "fences": "```\n", "rules": "a\n===\n", "links": "[a][b]"},
    **{"comments": "<!--", "tags": "<a "},
}
"""Texts that are repeated up to 4 MB."""


def main() -> None:
    arguments = _arguments()
    print(heading())
    settings = load_settings(None, "default", arguments.set, environment={})
    hashing = load_settings(
        None, "default", ["embedding={type: hashing, dimension: 8}", *arguments.set], environment={}
    )
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        folder = scratch / "files"
        folder.mkdir()
        for name, text in files(arguments.share):
            if not arguments.only or name in arguments.only:
                (folder / name).write_text(text)
        for number in range(SMALL_DOCUMENTS):
            (folder / f"small-{number:02}.md").write_text(f"# Gate {number}\n\nGate {number} opens at spring tide.\n")
        timed = TimedPreparation(lambda sources: build_preparation(settings, sources))
        print(f"{'document':20} {'MB':>6} {'CPU s':>7} {'at s':>7}  outcome")
        runner = replace(build_inline_runner(hashing), build_preparation=timed.build, readers=1)  # type: ignore[arg-type]
        report = build_sync(hashing, Postgres.open(dsn), [str(folder)]).run(runner)
    print(f"{report.documents}, {report.seconds['total']:.0f} s")


def files(share: float) -> Iterator[tuple[str, str]]:
    """Yields name and text of each file, of `share` of its full size."""
    rows = (",".join(f"r{row}c{column}" for column in range(int(100_000 * share))) for row in range(20))
    yield "wide.csv", "\n".join(rows)
    yield "long.csv", "".join(f"{row},name {row},a,b,{row % 7}\n" for row in range(int(1_000_000 * share)))
    yield "line.txt", "some words of a long line " * int(730_000 * share)
    yield "word.txt", "x" * int(10_000_000 * share)
    yield "invisible.txt", "a\u200b" * int(750_000 * share)
    yield "heading.md", f"# {'words ' * int(150_000 * share)}\n\n" + "## Part\n\nText.\n\n" * int(50_000 * share)
    depth = int((8_000_000 * share) ** 0.5)
    yield "deep-list.md", "".join(f"{'  ' * level}- item\n" for level in range(depth))
    yield "deep-quote.md", "".join(f"{'> ' * level}item\n" for level in range(depth))
    for name, text in MONOTONOUS.items():
        yield f"{name}.md", text * int(4_000_000 * share / len(text))


class TimedPreparation:
    """Prepares documents one by one, and prints each when it is ready."""

    def __init__(self, build: Callable[[Mapping[int, Source]], Preparation]) -> None:
        self._build, self._began = build, time.perf_counter()

    def build(self, sources: Mapping[int, Source]) -> Callable[[Sequence[Draft]], Iterator[Draft]]:
        prepare = self._build(sources)

        def prepare_timed(drafts: Sequence[Draft]) -> Iterator[Draft]:
            for draft in drafts:
                before = _cpu_seconds()
                for ready in prepare([draft]):
                    self._print_row(ready, _cpu_seconds() - before)
                    yield ready

        return prepare_timed

    def _print_row(self, draft: Draft, seconds: float) -> None:
        name, at = Path(draft.entry.uri).name, time.perf_counter() - self._began
        outcome = f"{draft.failure.stage}: {draft.failure.reason}" if draft.failure else f"{len(draft.chunks)} chunks"
        print(f"{name:20} {draft.entry.size / 1e6:6.1f} {max(seconds, 0):7.1f} {at:7.1f}  {outcome}", flush=True)


def _cpu_seconds() -> float:
    """The CPU time of this thread and of the parser's process. A new process begins at 0."""
    seconds = time.thread_time()
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # it has ended
            if "sandbox_child" in "".join(child.cmdline()):
                used = child.cpu_times()
                seconds += used.user + used.system
    return seconds


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the full size of the files")
    parser.add_argument("--only", nargs="+", default=[], metavar="FILE", help="only these files and the small ones")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=VALUE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
