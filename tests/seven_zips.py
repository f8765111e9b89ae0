"""7z archives, written with libarchive."""

import ctypes
from collections.abc import Mapping
from pathlib import Path

from rag_core.ingestion.containers.seven_zip import LIBRARIES

_REGULAR_FILE = 0o100000


def find_libarchive() -> ctypes.CDLL | None:
    for name in LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def write_seven_zip(path: Path, files: Mapping[str, bytes]) -> None:
    library = find_libarchive()
    assert library is not None
    library.archive_write_new.restype = library.archive_entry_new.restype = ctypes.c_void_p
    archive = ctypes.c_void_p(library.archive_write_new())
    library.archive_write_set_format_7zip(archive)
    assert library.archive_write_open_filename(archive, str(path).encode()) == 0
    for name, content in files.items():
        entry = ctypes.c_void_p(library.archive_entry_new())
        library.archive_entry_update_pathname_utf8(entry, name.encode())
        library.archive_entry_set_size(entry, ctypes.c_int64(len(content)))
        library.archive_entry_set_filetype(entry, _REGULAR_FILE)
        library.archive_entry_set_perm(entry, 0o644)
        assert library.archive_write_header(archive, entry) == 0
        library.archive_write_data(archive, content, ctypes.c_size_t(len(content)))
        library.archive_entry_free(entry)
    assert library.archive_write_close(archive) == 0
    library.archive_write_free(archive)
