"""Zip-based documents, made from the text of their parts."""

from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

_RELATIONS = "http://schemas.openxmlformats.org/package/2006/relationships"
_TYPE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_CORE = (
    '<cp:coreProperties xmlns:cp="http://schemas.openxmlformats.org/package/2006/metadata/core-properties"'
    ' xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:dcterms="http://purl.org/dc/terms/">{}</cp:coreProperties>'
)


def zip_bytes(files: Mapping[str, str | bytes]) -> bytes:
    """A zip file without times, so that equal parts give equal bytes."""
    out = BytesIO()
    with ZipFile(out, "w") as file:
        for name, content in files.items():
            file.writestr(ZipInfo(name), content, ZIP_DEFLATED)
    return out.getvalue()


def relations(targets: Mapping[str, str]) -> str:
    """The relationships XML of targets by kind. The ids are the kinds; a number can follow a repeated kind: slide2."""
    relationships = "".join(
        f'<Relationship Id="{id}" Type="{_TYPE}/{id.rstrip("0123456789")}" Target="{target}"/>'
        for id, target in targets.items()
    )
    return f'<Relationships xmlns="{_RELATIONS}">{relationships}</Relationships>'


def office(main: str, files: Mapping[str, str], core: str = "") -> bytes:
    """A package whose main part has this name. `core` is the XML of its core properties."""
    root = relations({"officeDocument": main, "core-properties": "docProps/core.xml"})
    return zip_bytes({"_rels/.rels": root, "docProps/core.xml": _CORE.format(core), **files})
