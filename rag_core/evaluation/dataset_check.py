"""The counts of a dataset, and the rules that its files break."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rag_core.errors import DatasetError
from rag_core.evaluation.answer_layouts import (
    ANSWERS,
    CLAPNQ_ITEMS,
    CONVERSATIONS,
    REWRITES,
    SPAN_DOCUMENTS,
    SPAN_QUESTIONS,
    parse_answers,
    parse_clapnq_passage,
    parse_clapnq_question,
    parse_conversation,
    parse_rewrite,
    parse_span_question,
)
from rag_core.evaluation.claims import CLAIMS, has_claims, hash_claims, parse_claim, read_claims
from rag_core.evaluation.dataset import (
    QRELS_HEADER,
    Dataset,
    parse_document,
    parse_grade,
    parse_query,
    parse_span,
    read_dataset,
    read_document_ids,
)
from rag_core.evaluation.dataset_lines import parse_row, read_lines, split_fields
from rag_core.evaluation.fingerprints import hash_dataset, hash_grades
from rag_core.evaluation.scripted_conversations import (
    has_scripts,
    hash_scripts,
    parse_script,
    read_scripts,
    scripts_path,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetCheck:
    """`facts` are empty if the dataset cannot be used; `problems` are empty if every file keeps every rule."""

    facts: Mapping[str, Any]
    problems: tuple[str, ...]


def check_dataset(folder: Path, split: str = "test") -> DatasetCheck:
    """Checks every line by itself, and then the dataset as a whole.

    Duplicates, spans beyond the text and grades of unknown questions are reported one at a time.
    """
    problems = [problem for path, parse in _list_files(folder, split) for problem in find_line_problems(path, parse)]
    if has_claims(folder):
        return _check_claims(folder, problems)
    if has_scripts(folder):
        return _check_scripts(folder, split, problems)
    try:
        dataset = read_dataset(folder, split)
    except DatasetError as error:
        return DatasetCheck(facts={}, problems=tuple(dict.fromkeys([*problems, str(error)])))
    problems += [f"document {id!r} is graded, but is not in the corpus" for id in dataset.missing]
    return DatasetCheck(facts=describe_dataset(dataset, split), problems=tuple(problems))


def _check_claims(folder: Path, problems: list[str]) -> DatasetCheck:
    try:
        claims = read_claims(folder)
    except DatasetError as error:
        return DatasetCheck(facts={}, problems=tuple(dict.fromkeys([*problems, str(error)])))
    supported = sum(claim.is_supported for claim in claims)
    facts = {
        "dataset": folder.resolve().name,
        "claims": len(claims),
        "supported": supported,
        "unsupported": len(claims) - supported,
        "dataset_hash": hash_claims(folder),
    }
    return DatasetCheck(facts=facts, problems=tuple(problems))


def _check_scripts(folder: Path, split: str, problems: list[str]) -> DatasetCheck:
    try:
        scripts = read_scripts(folder, split)
    except DatasetError as error:
        return DatasetCheck(facts={}, problems=tuple(dict.fromkeys([*problems, str(error)])))
    turns = [turn for script in scripts for turn in script.turns]
    facts: dict[str, Any] = {
        "dataset": folder.resolve().name,
        "split": split,
        "conversations": len(scripts),
        "turns": len(turns),
        "follow_ups": sum(turn.is_follow_up for turn in turns),
        **Counter(turn.expect for turn in turns),
        "dataset_hash": hash_scripts(scripts),
    }
    return DatasetCheck(facts=facts, problems=tuple(problems))


def describe_dataset(dataset: Dataset, split: str) -> dict[str, Any]:
    """The name, the counts and the hashes of a dataset."""
    asked = dataset.asked
    return {
        "dataset": dataset.name,
        "split": split,
        "documents": len(read_document_ids(dataset.corpus)),
        "questions": len(asked),
        "with_relevant_documents": len(dataset.questions),
        "with_references": sum(bool(question.references) for question in asked),
        "with_spans": sum(bool(question.spans) for question in asked),
        "with_history": sum(bool(question.history) for question in asked),
        "with_rewrites": sum(bool(question.rewrite) for question in asked),
        "answerable": sum(question.answerable is True for question in asked),
        "unanswerable": sum(question.answerable is False for question in asked),
        "grades": sum(len(question.grades) for question in asked),
        "missing_documents": len(dataset.missing),
        "dataset_hash": hash_dataset(dataset),
        "grades_hash": hash_grades(dataset),
    }


def find_line_problems(path: Path, parse: Callable[[str, str], object]) -> Iterator[str]:
    """Yields what is wrong with each line. A file that cannot be read has one problem."""
    try:
        for location, line in read_lines(path):
            try:
                parse(location, line)
            except DatasetError as error:
                yield str(error)
    except DatasetError as error:
        yield str(error)


def _list_files(folder: Path, split: str) -> list[tuple[Path, Callable[[str, str], object]]]:
    """The dataset's files that exist, with the parsers of their lines."""
    rows: list[tuple[str, Callable[[str, Any], object]]] = [
        ("corpus.jsonl", parse_document),
        ("queries.jsonl", parse_query),
        (f"queries_{split}.jsonl", parse_query),
        (f"qrels/{split}.spans.jsonl", parse_span),
        (ANSWERS, parse_answers),
        (CONVERSATIONS, parse_conversation),
        (REWRITES, parse_rewrite),
        (SPAN_DOCUMENTS, parse_document),
        (SPAN_QUESTIONS, parse_span_question),
        (CLAPNQ_ITEMS, parse_clapnq_question),
        (CLAPNQ_ITEMS, parse_clapnq_passage),
        (CLAIMS, parse_claim),
        (scripts_path(folder, split).name, parse_script),
    ]
    files = [(folder / name, _parse_json_line(parse)) for name, parse in rows]
    return [
        (path, parse)
        for path, parse in (*files, (folder / "qrels" / f"{split}.tsv", _parse_grade_line))
        if path.is_file()
    ]


def _parse_json_line(parse: Callable[[str, Any], object]) -> Callable[[str, str], object]:
    return lambda location, line: parse(location, parse_row(location, line))


def _parse_grade_line(location: str, line: str) -> None:
    fields = split_fields(line)
    if fields != QRELS_HEADER:
        parse_grade(location, fields)
