"""The program of the child process that reads a 7z archive with libarchive and writes its files as a tar archive.

Standard input is the archive, standard output the tar archive; the arguments are names of libarchive. The exit status
is 0, `NO_LIBRARY`, or 1 after a reason on standard error. It imports no module of the project, so it starts fast.
"""

import ctypes
import resource
import sys
from tarfile import BLOCKSIZE, PAX_FORMAT, TarInfo

NO_LIBRARY = 3
_MAX_MEMORY, _MAX_SECONDS, _MAX_FILES, _MAX_FILE_BYTES = 1 << 30, 600, 16, 1 << 16
_OK, _END, _WARNING, _REGULAR_FILE = 0, 1, -20, 0o100000
_BUFFER_BYTES = 1 << 20


def main(libraries: list[str]) -> int:
    library = _load_library(libraries)
    if library is None:
        return NO_LIBRARY
    for limit, maximum in (
        (resource.RLIMIT_AS, _MAX_MEMORY),
        (resource.RLIMIT_CPU, _MAX_SECONDS),
        (resource.RLIMIT_NOFILE, _MAX_FILES),
        (resource.RLIMIT_FSIZE, _MAX_FILE_BYTES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        maximum = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
        resource.setrlimit(limit, (maximum, maximum))
    try:
        _copy_files(library)
    except (ValueError, MemoryError) as error:
        sys.stderr.write(" ".join(str(error).split()) or "out of memory")
        return 1
    return 0


def _load_library(names: list[str]) -> ctypes.CDLL | None:
    for name in names:
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.archive_read_new.restype = ctypes.c_void_p
        library.archive_error_string.restype = ctypes.c_char_p
        library.archive_entry_pathname_utf8.restype = ctypes.c_char_p
        library.archive_entry_size.restype = ctypes.c_int64
        library.archive_read_data.restype = ctypes.c_ssize_t
        return library
    return None


def _copy_files(library: ctypes.CDLL) -> None:
    """Raises ValueError with the reason if the archive cannot be read to its end."""
    archive, entry = ctypes.c_void_p(library.archive_read_new()), ctypes.c_void_p()
    library.archive_read_support_format_7zip(archive)
    _check(library, archive, library.archive_read_open_fd(archive, 0, ctypes.c_size_t(1 << 16)))
    while (status := library.archive_read_next_header(archive, ctypes.byref(entry))) != _END:
        _check(library, archive, status)
        if library.archive_entry_filetype(entry) == _REGULAR_FILE:
            _copy_file(library, archive, entry)
    sys.stdout.buffer.write(bytes(2 * BLOCKSIZE))
    sys.stdout.buffer.flush()


def _copy_file(library: ctypes.CDLL, archive: ctypes.c_void_p, entry: ctypes.c_void_p) -> None:
    header = TarInfo((library.archive_entry_pathname_utf8(entry) or b"unnamed").decode("utf-8", "surrogateescape"))
    header.size = remaining = library.archive_entry_size(entry)
    sys.stdout.buffer.write(header.tobuf(PAX_FORMAT, "utf-8", "surrogateescape"))
    buffer = ctypes.create_string_buffer(_BUFFER_BYTES)
    while remaining > 0:
        count = library.archive_read_data(archive, buffer, ctypes.c_size_t(min(remaining, _BUFFER_BYTES)))
        if count <= 0:
            _check(library, archive, count)
            raise ValueError("it ends too early")
        sys.stdout.buffer.write(buffer.raw[:count])
        remaining -= count
    sys.stdout.buffer.write(bytes(-header.size % BLOCKSIZE))


def _check(library: ctypes.CDLL, archive: ctypes.c_void_p, status: int) -> None:
    """Raises ValueError with libarchive's message if the status is an error."""
    if status not in (_OK, _WARNING):
        message = library.archive_error_string(archive)
        raise ValueError((message or b"unknown error").decode("utf-8", "replace"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
