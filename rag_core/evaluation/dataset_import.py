"""The import of other projects' datasets into the layout of `rag evaluate`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from rag_core.errors import DatasetError, UsageError
from rag_core.evaluation.answer_layouts import ANSWERS, CONVERSATIONS
from rag_core.evaluation.claims import write_claims
from rag_core.evaluation.dataset import write_corpus, write_grades, write_queries
from rag_core.evaluation.dataset_check import DatasetCheck, check_dataset
from rag_core.evaluation.dataset_lines import write_json_lines
from rag_core.evaluation.imports.beir import read_beir
from rag_core.evaluation.imports.format import Format
from rag_core.evaluation.imports.imported_dataset import ImportedDataset
from rag_core.evaluation.imports.labelled_claims import read_labelled_claims
from rag_core.evaluation.imports.mtrag import read_mtrag
from rag_core.evaluation.imports.ragas import read_ragas
from rag_core.evaluation.imports.trec import read_trec

READERS: Mapping[str, Callable[[Path], ImportedDataset]] = {
    "beir": read_beir,
    "trec": read_trec,
    "ragas": read_ragas,
    "mtrag": read_mtrag,
}


def import_dataset(format: Format, source: Path, target: Path) -> dict[str, DatasetCheck]:
    """Writes the dataset to `target`, and returns what was checked, by split.

    Either the whole dataset is written, or nothing. Raises UsageError if the target is not empty, and DatasetError for
    the first line that breaks a rule.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"the target must be a new or an empty folder, got {target}")
    place = target.resolve()
    place.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.") as temporary:
        folder = Path(temporary) / place.name
        folder.mkdir()
        checks = _write_checked(format, source, folder)
        place.mkdir(exist_ok=True)  # an existing folder is kept, because it can be the one that the shell is in
        for path in folder.iterdir():
            path.replace(place / path.name)
    return checks


def _write_checked(format: Format, source: Path, folder: Path) -> dict[str, DatasetCheck]:
    if format == "claims":
        write_claims(folder, read_labelled_claims(source))
        splits = ["test"]
    else:
        imported = READERS[format](source)
        _write_files(folder, imported)
        splits = list(imported.qrels)
    checks = {split: check_dataset(folder, split) for split in splits}
    for check in checks.values():
        if not check.facts:
            raise DatasetError(check.problems[-1].replace(str(folder), str(source)))
    return checks


def _write_files(folder: Path, imported: ImportedDataset) -> None:
    ids = set[str]()
    for document in imported.corpus:
        if document.id in ids:
            raise DatasetError(f"duplicate document id {document.id!r}")
        ids.add(document.id)
    write_corpus(folder, imported.corpus)
    write_queries(folder, imported.queries)
    (folder / "qrels").mkdir()
    for split, qrels in imported.qrels.items():
        write_grades(folder / "qrels" / f"{split}.tsv", qrels)
    for name, rows in ((ANSWERS, imported.answers), (CONVERSATIONS, imported.conversations)):
        if rows:
            write_json_lines(folder / name, rows)
