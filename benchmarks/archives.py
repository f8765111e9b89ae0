"""Zip archives in memory."""

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile


def zip_bytes(entries: Mapping[str, bytes | str]) -> bytes:
    out = BytesIO()
    with ZipFile(out, "w", ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(name, content)
    return out.getvalue()
