"""Flags of a document: what its reader should know about the text, such as a doubtful encoding."""

from collections.abc import Iterable
from dataclasses import replace

from rag_core.types import Document

FLAGS = "flags"
"""The metadata key of a document's flags."""


def with_flags(document: Document, flags: Iterable[str]) -> Document:
    """The document with the flags besides those that it has, in alphabetical order."""
    present = document.metadata.get(FLAGS, ())
    united = sorted({*flags}.union(present if isinstance(present, list) else ()))
    return replace(document, metadata={**document.metadata, FLAGS: united}) if united else document
