"""The runners of a sync: this process, Ray, or whichever is faster. `python -m jobs.ingest` is `rag ingest`."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jobs.command_line import run_command
from jobs.ray_runner import UNLIMITED, RayRunner, Resources
from rag_core.config import Settings

MEGABYTE = 1_000_000
CLUSTER_MIN_DOCUMENTS, CLUSTER_MIN_MEGABYTES = 64, 1.0
"""The limits below which a job runs in this process, even if a cluster is running."""


class RunnerName(StrEnum):
    auto = "auto"
    inline = "inline"
    ray = "ray"


@dataclass(frozen=True, slots=True)
class AutoRunner:
    """A runner that uses Ray only for large jobs.

    This process completes a small job on all its CPUs before Ray would have started.
    """

    settings: Settings
    resources: Resources

    def run(self, target: Any, sources: Mapping[int, Any], drafts: Sequence[Any], check: Any) -> Any:
        name = RunnerName.inline if self.fits_inline(drafts) else RunnerName.ray
        return build_runner(name, self.settings, self.resources).run(target, sources, drafts, check)

    def fits_inline(self, drafts: Sequence[Any]) -> bool:
        documents, megabytes = self.settings.ingestion.inline_documents, self.settings.ingestion.inline_mb
        if self.resources != UNLIMITED or "RAY_ADDRESS" in os.environ:
            documents, megabytes = min(documents, CLUSTER_MIN_DOCUMENTS), min(megabytes, CLUSTER_MIN_MEGABYTES)
        return len(drafts) < documents and sum(draft.entry.size for draft in drafts) < megabytes * MEGABYTE


def build_runner(name: RunnerName, settings: Settings, resources: Resources = UNLIMITED) -> Any:
    match name:
        case RunnerName.auto:
            return AutoRunner(settings, resources)
        case RunnerName.inline:
            from rag_core.wiring.ingestion import build_inline_runner

            return build_inline_runner(settings)
        case RunnerName.ray:
            return RayRunner(settings, resources)


if __name__ == "__main__":
    run_command("ingest")
