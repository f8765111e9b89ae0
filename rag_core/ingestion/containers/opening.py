"""Opens a container by the suffix of its uri and by its content."""

from rag_core.ingestion.containers.container import Budget, Container
from rag_core.ingestion.containers.mail_container import open_mailbox
from rag_core.ingestion.containers.source_file import SourceFile
from rag_core.ingestion.containers.streams import decompress_file, is_compressed_with
from rag_core.ingestion.containers.tar_container import open_tar
from rag_core.ingestion.containers.zip_container import open_zip
from rag_core.parsing.container_names import CONTAINERS, container_suffix

_FORMATS = {"zip": open_zip, "tar": open_tar, "mbox": open_mailbox}


def open_container(uri: str, file: SourceFile, budget: Budget) -> Container | None:
    """None if the content is not what the suffix says: then the file is a document.

    Raises DocumentError if the container is damaged, incomplete, encrypted or above the limits.
    """
    format_, compression = CONTAINERS[container_suffix(uri)]
    if compression:
        if not is_compressed_with(file, compression):
            return None
        file = decompress_file(file, compression, budget)
    return _FORMATS[format_](file, budget)
