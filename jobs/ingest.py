"""The runners of a sync: this process, Ray, or whichever is faster. `python -m jobs.ingest` is `rag ingest`."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from jobs.command_line import run_command
from jobs.ray_connection import UNLIMITED, Resources
from jobs.ray_runner import RayRunner
from rag_core.config import Settings

MEGABYTE = 1_000_000
CLUSTER_MIN_DOCUMENTS, CLUSTER_MIN_MEGABYTES = 64, 1.0
"""The limits below which a job runs in this process, even if a cluster is running."""


class RunnerName(StrEnum):
    auto = "auto"
    inline = "inline"
    ray = "ray"


def ignore_choice(message: str) -> None:
    """The listener of a runner whose choice nobody reads."""


@dataclass(frozen=True, slots=True)
class AutoRunner:
    """A runner that uses Ray only where it is faster. `on_choice` receives the choice and its reason.

    With few CPUs, Ray's own processes cost more than they save. This process completes a small job on all its CPUs
    before Ray would have started.
    """

    settings: Settings
    resources: Resources
    on_choice: Callable[[str], None] = ignore_choice

    def run(self, target: Any, sources: Mapping[int, Any], drafts: Sequence[Any], check: Any) -> Any:
        name, reason = self.choose(drafts)
        self.on_choice(f"{'on Ray' if name is RunnerName.ray else 'in this process'}: {reason}")
        return build_runner(name, self.settings, self.resources).run(target, sources, drafts, check)

    def choose(self, drafts: Sequence[Any]) -> tuple[RunnerName, str]:
        """The runner for these drafts, and the reason."""
        if self.resources != UNLIMITED:
            return RunnerName.ray, "--cpus, --gpus or --concurrency was given"
        ingestion = self.settings.ingestion
        documents, megabytes = len(drafts), sum(draft.entry.size for draft in drafts) / MEGABYTE
        amount = f"{documents} documents with {megabytes:.1f} MB"
        if "RAY_ADDRESS" in os.environ:
            if documents < CLUSTER_MIN_DOCUMENTS and megabytes < CLUSTER_MIN_MEGABYTES:
                return RunnerName.inline, f"{amount} are too few for a cluster"
            return RunnerName.ray, f"RAY_ADDRESS is set, and {amount} are enough for a cluster"
        from rag_core.wiring.ingestion import count_cpus

        cpus = count_cpus()
        if cpus < ingestion.ray_from_cpus:
            return RunnerName.inline, f"{cpus} CPUs, less than ingestion.ray_from_cpus ({ingestion.ray_from_cpus})"
        if documents < ingestion.inline_documents and megabytes < ingestion.inline_mb:
            limits = f"{ingestion.inline_documents} and {ingestion.inline_mb:g} MB"
            return RunnerName.inline, f"{amount}, less than ingestion.inline_documents and inline_mb ({limits})"
        return RunnerName.ray, f"{cpus} CPUs and {amount}"


def build_runner(
    name: RunnerName,
    settings: Settings,
    resources: Resources = UNLIMITED,
    on_choice: Callable[[str], None] = ignore_choice,
) -> Any:
    match name:
        case RunnerName.auto:
            return AutoRunner(settings, resources, on_choice)
        case RunnerName.inline:
            from rag_core.wiring.ingestion import build_inline_runner

            return build_inline_runner(settings)
        case RunnerName.ray:
            return RayRunner(settings, resources)


if __name__ == "__main__":
    run_command("ingest")
