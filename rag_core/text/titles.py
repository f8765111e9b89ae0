"""Titles and file names: those that have words of a language, and the words of a file name."""

import re
from urllib.parse import unquote

_PLACEHOLDER = re.compile(
    r"""
      (?:new\ |neues?\ )?
      (?:title|titel|document|dokument|presentation|präsentation|slide|folie|sheet|tabelle|workbook|mappe|book
         |file|datei|page|seite|scan|index|readme)[\W\d_]*
    | (?:untitled|unbenannt).*
    | powerpoint.*
    | microsoft\ \w+(?:\ -.*)?
    | form(?:ular)?\ [\w-]*\d[\w-]*
    | \S+\.(?:txt|md|html?|pdf|docx?|xlsx?|pptx?|od[tsp]|rtf|csv|tsv|json|xml|eml|msg|tex|dvi|indd|qxd|wpd|pages)
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""Titles that programs write if the author gives none, names of forms, and names of files."""
_WORD = re.compile(r"(?<![^\W_])[^\W\d_]{2,}(?![^\W_])|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_MIN_LETTERS_BESIDE_DIGITS = 3
_TOKEN = re.compile(r"\w+")
_SUFFIX = re.compile(r"(?<=.)\.(?=\w*[^\W\d])\w{1,8}(?:\.gz)?\Z")
_SEPARATORS = re.compile(r"[\s_]+")
_SEPARATORS_WITHOUT_SPACES = re.compile(r"[\s_+.-]+")
_CAMEL_CASE = re.compile(r"(?<=[^\W\d_A-Z])(?=[A-Z])|(?<=[A-Z\d])(?=[A-Z][^\W\d_A-Z])|(?<=[^\W\d_A-Z]{3})(?=\d)")


def has_words(title: str) -> bool:
    """False for titles such as `untitled`, `Slide 1`, `Form 10-K`, `report.doc` and `0000320193-23-000106`.

    Two letters are a word, such as `AI`; next to digits three are, because `EX-99` is a number of a document.
    """
    if _PLACEHOLDER.fullmatch(title.strip()):
        return False
    words = _WORD.findall(title)
    has_digits = any(map(str.isdigit, title))
    return any(len(word) >= _MIN_LETTERS_BESIDE_DIGITS or not word.isascii() for word in words) or (
        bool(words) and not has_digits
    )


def file_name(uri: str) -> str:
    """The last part of the path, without percent encoding and in one line."""
    return " ".join(unquote(uri.rstrip("/").rpartition("/")[2]).split())


def split_name(name: str) -> str:
    """The words of a file name without its suffix: `quarterly_report-2023.pdf` gives `quarterly report 2023`.

    Camel case is split, too. A name with white space keeps its hyphens and stops.
    """
    stem = _SUFFIX.sub("", name)
    if " " in stem.strip():
        return _SEPARATORS.sub(" ", stem).strip()
    return _SEPARATORS_WITHOUT_SPACES.sub(" ", _CAMEL_CASE.sub(" ", stem)).strip()


def missing_name_words(uri: str, title: str) -> str:
    """The words of the file's name if the title lacks one of them; empty if they are no words or the uri has no suffix.

    A uri without a suffix names no file, but a page, a record or a pushed document.
    """
    name = file_name(uri)
    words = split_name(name)
    if not _SUFFIX.search(name) or not has_words(words):
        return ""
    known = split_name(title).casefold().split() + _TOKEN.findall(title.casefold())
    return "" if {*words.casefold().split()} <= {*known} else words
