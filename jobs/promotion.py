"""Runs that were promoted: the accepted state of a profile on a dataset, which the next run must not fall behind.

RAG_HOME/runs/HASH/                        a copy of the run's files
RAG_HOME/runs/promoted/PROFILE/DATASET     the hash of the promoted run
"""

import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import mkdtemp
from urllib.parse import quote

from jobs.evaluation_runs import ANSWERS, HTML, QUESTIONS, REPORT, read_report, read_run, read_runs
from rag_core.errors import InvalidRunError
from rag_core.evaluation.measured_run import MeasuredRun, RunPair, check_coverage, pair_runs
from rag_core.storage.embedded import rag_home
from rag_core.types import DEFAULT_TENANT

PROMOTED = "promoted"
HASH_DIGITS = 16
COPY_PREFIX = ".copy-"
"""The beginning of the names of unfinished copies."""


def promote_run(folder: Path) -> str:
    """Stores a copy of the run under its hash, as the base of its profile and dataset. Returns the hash.

    Raises InvalidRunError if too many questions failed.
    """
    run = read_run(folder)
    check_coverage([run], sorted(run.values.keys() | run.failed.keys()))
    digest = _hash_files(folder)
    if not (runs_folder() / digest).exists():
        _copy_run(folder, runs_folder() / digest)
    pointer = _promotion_file(run)
    pointer.parent.mkdir(parents=True, exist_ok=True)
    written = pointer.with_name(f"{pointer.name}.{os.getpid()}")
    written.write_text(f"{digest}\n")
    written.replace(pointer)
    return digest


def runs_folder() -> Path:
    return rag_home() / "runs"


def list_promoted_runs() -> frozenset[str]:
    """The hashes of the promoted runs, which are the names of their folders."""
    return frozenset(pointer.read_text().strip() for pointer in runs_folder().glob(f"{PROMOTED}/*/*"))


def find_base(run: MeasuredRun) -> Path | None:
    """The folder of the run that was promoted for this profile and dataset; None if none was."""
    pointer = _promotion_file(run)
    return runs_folder() / pointer.read_text().strip() if pointer.is_file() else None


def pair_with_base(runs: Sequence[MeasuredRun], base: str, needs_base: bool) -> list[RunPair]:
    """Pairs the runs with those of the folder `base`, or with the promoted ones if it is `promoted`.

    Without pairs if none of the runs has a promoted one and none is needed.
    """
    if base != PROMOTED:
        return pair_runs(read_runs(Path(base)), runs)
    folders = [folder for run in runs if (folder := find_base(run))]
    if folders or not needs_base:
        return pair_runs([read_run(folder) for folder in folders], runs) if folders else []
    names = ", ".join(f"{run.name} with {run.profile}" for run in runs)
    raise InvalidRunError(f"no run is promoted for {names}; promote one with `rag promote RUN`, or pass --base RUN")


def list_past_runs(run: MeasuredRun, tenant: str) -> list[Path]:
    """The folders of all runs of this profile, dataset and tenant that were ever promoted, in no order."""
    folders = [file.parent for file in runs_folder().glob(f"{'[0-9a-f]' * HASH_DIGITS}/{REPORT}")]
    reports = {folder: {"tenant": DEFAULT_TENANT, **read_report(folder)} for folder in folders}
    kind = {"dataset": run.dataset, "split": run.split, "profile": run.profile, "tenant": tenant}
    return [folder for folder, report in reports.items() if all(report.get(name) == kind[name] for name in kind)]


def _copy_run(folder: Path, target: Path) -> None:
    """Copies the files; the target appears only when it is complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = Path(mkdtemp(dir=target.parent, prefix=COPY_PREFIX))
    for file in _run_files(folder):
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / file, copy / file)
    copy.rename(target)


def _run_files(folder: Path) -> Iterator[Path]:
    """The files of a run, relative to its folder, without other files that lie there."""
    for name in (REPORT, QUESTIONS, ANSWERS, HTML, "qrels.trec", "runs/*.trec"):
        yield from (file.relative_to(folder) for file in sorted(folder.glob(name)))


def _hash_files(folder: Path) -> str:
    """The hash of what was measured. The page can be written again, with another base."""
    digest = hashlib.sha256()
    for file in (file for file in _run_files(folder) if file.name != HTML):
        digest.update(f"{file.as_posix()}\0{(folder / file).stat().st_size}\0".encode())
        digest.update((folder / file).read_bytes())
    return digest.hexdigest()[:HASH_DIGITS]


def _promotion_file(run: MeasuredRun) -> Path:
    return runs_folder() / PROMOTED / quote(run.profile, safe="") / quote(run.name, safe="")
