"""Documents of other datasets, added to a corpus so that the relevant documents are harder to find."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from rag_core.errors import DatasetError
from rag_core.evaluation.dataset import CORPUS_FILES, Dataset, read_corpus
from rag_core.evaluation.question import CorpusDocument


def pad_dataset(dataset: Dataset, folders: list[Path]) -> Dataset:
    """A copy whose collection also has the documents of the datasets in `folders`."""
    if folders and dataset.corpus.is_dir():
        raise DatasetError(f"only a corpus in JSON lines can be padded, got the folder {dataset.corpus}")
    return replace(dataset, padding=tuple(map(_find_lines, folders)))


def read_padded_corpus(dataset: Dataset) -> Iterator[CorpusDocument]:
    """Yields the documents of the dataset, and then those of its padding, with ids such as `p1:4983`.

    These ids have no words of their own, because the words of file names are searched. A text that was already read is
    left out: a copy of a relevant document would count as a wrong hit.
    """
    texts = set[str]()
    for document in read_corpus(dataset.corpus):
        texts.add(document.text.strip())
        yield document
    for number, corpus in enumerate(dataset.padding, start=1):
        for document in read_corpus(corpus):
            if (text := document.text.strip()) not in texts:
                texts.add(text)
                yield replace(document, id=f"p{number}:{document.id}")


def padding_name(corpus: Path) -> str:
    return corpus.resolve().parent.name


def _find_lines(folder: Path) -> Path:
    for name in CORPUS_FILES:
        if (path := folder / name).is_file():
            return path
    raise DatasetError(f"{folder} has none of the files {', '.join(CORPUS_FILES)}")
