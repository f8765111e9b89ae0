"""A folder for trying things out: an embedded store that nothing else uses, and that ends with the program."""

import os
import shutil
from pathlib import Path
from tempfile import mkdtemp
from weakref import finalize

from rag_core.storage import embedded

PREFIX = "RAG_"


class TemporaryHome:
    """A new folder as RAG_HOME of this process, without any other RAG_ variable, until `remove`.

    `open_knowledge_base()` then starts a Postgres server in the folder, with the default settings. What you put into
    `folder` is deleted with it. At the end of the program, `remove` is called if it was not.
    """

    def __init__(self) -> None:
        self.folder = Path(mkdtemp(prefix="rag-"))
        self.folder.chmod(0o755)  # for root, the server runs as another user, who must be able to enter
        former = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
        home = self.folder / "home"
        os.environ["RAG_HOME"] = str(home)
        self._remove = finalize(self, _remove_home, self.folder, home, former)

    def remove(self) -> None:
        """Stops the server, deletes the folder, and restores the variables. Does nothing the second time."""
        self._remove()


def _remove_home(folder: Path, home: Path, former: dict[str, str]) -> None:
    embedded.stop(home / "postgres")
    shutil.rmtree(folder, ignore_errors=True)
    os.environ.pop("RAG_HOME", None)
    os.environ.update(former)
