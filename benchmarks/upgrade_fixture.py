"""Makes the store of a former version that `tests/integration/test_upgrade.py` upgrades.

The former version, unpacked from git, makes a small store and records the hits of some searches; the dump is this
version's.

    python -m benchmarks.upgrade_fixture
"""

import argparse
from pathlib import Path

from benchmarks.former import FORMER, ROOT, run_program, unpack_program
from benchmarks.scratch import scratch_folder, server_in
from rag_core.storage.dump import dump_store
from rag_core.storage.postgres import Postgres

FOLDER = ROOT / "tests" / "data" / "upgrade"
DUMP, ANSWERS = "former.dump", "answers.json"


def main() -> None:
    arguments = _arguments()
    with scratch_folder() as scratch, server_in(scratch) as dsn:
        former = unpack_program(scratch / "former", arguments.revision)
        run_program(former, "sample", dsn, str(arguments.folder / ANSWERS))
        manifest = dump_store(Postgres(dsn), arguments.folder / DUMP, replace=True)
    print(f"{arguments.folder / DUMP}: {manifest.size} bytes, schema {manifest.schema_version}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--revision", default=FORMER, help="a commit or a tag")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    return parser.parse_args()


if __name__ == "__main__":
    main()
