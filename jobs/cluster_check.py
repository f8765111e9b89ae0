"""The check of a Ray cluster: what each node has, reaches and sees."""

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from jobs.cluster_findings import (
    CLUSTER,
    ClusterFinding,
    judge_environment,
    judge_machine,
    judge_metrics,
    judge_program,
    judge_source,
    judge_store,
    judge_versions,
    soften_finding,
)
from jobs.cluster_nodes import Answer, Node, list_nodes, run_on_nodes
from jobs.machine_facts import probe_http, read_machine
from jobs.node_program import describe_program
from jobs.package_shipping import (
    SHIPPED_PACKAGES,
    NodeProgram,
    compare_program,
    describe_reasons,
    list_distributions,
    request_programs,
    ship_program,
)
from jobs.ray_connection import UNLIMITED, start_ray
from jobs.source_samples import take_sample
from rag_core.errors import ClusterError
from rag_core.protocols import Source
from rag_core.storage.reachability import measure_reach


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCheck:
    """The check of the cluster that RAY_ADDRESS names. `timeout` limits each of its steps, in seconds.

    `on_step` receives a line before each step.
    """

    store_url: str
    sources: Sequence[Source]
    gateway_port: int
    timeout: float
    on_step: Callable[[str], None]

    def run(self) -> Iterator[ClusterFinding]:
        """Yields the findings as they are known. Raises ClusterError if the cluster cannot be reached.

        Nodes that do not answer the first question are not asked again.
        """
        self.on_step("connecting to the cluster")
        start_ray()
        nodes = list_nodes()
        self.on_step(f"asking {len(nodes)} nodes for their versions")
        answers = list(request_programs(nodes, self.timeout))
        for finding in (*self._check_programs(answers), *self._check_nodes(answers)):
            yield soften_finding(finding, nodes)
        yield check_dashboard()

    def _check_programs(self, answers: Sequence[Answer]) -> Iterator[ClusterFinding]:
        """Compares the programs, and ships this one for the next steps if nodes lack it."""
        expected = describe_program(SHIPPED_PACKAGES, list_distributions())
        programs = [compare_program(answer, expected) for answer in answers]
        yield from map(judge_program, programs)
        for answer in answers:
            if not answer.error:
                yield judge_versions(answer.node.name, answer.value, expected)
        yield from supply_program(programs, self.timeout)

    def _check_nodes(self, answers: Sequence[Answer]) -> Iterator[ClusterFinding]:
        nodes = [answer.node for answer in answers if not answer.error]
        yield from self._check_machines(nodes)
        yield from check_metrics(nodes)
        yield from self._check_store(nodes)
        for source in self.sources:
            self.on_step(f"listing {source.uri} on {len(nodes)} nodes")
            expected = take_sample(source)
            for answer in run_on_nodes(take_sample, [source], nodes, self.timeout):
                yield judge_source(answer, source.uri, expected)

    def _check_machines(self, nodes: Sequence[Node]) -> Iterator[ClusterFinding]:
        self.on_step(f"reading disks, memory, ports and GPUs of {len(nodes)} nodes")
        environments: dict[str, Mapping[str, str]] = {}
        arguments = [self.gateway_port, secrets.token_bytes(16)]
        for answer in run_on_nodes(read_machine, arguments, nodes, self.timeout):
            yield from judge_machine(answer)
            if not answer.error:
                environments[answer.node.name] = answer.value.environment
        yield judge_environment(environments)

    def _check_store(self, nodes: Sequence[Node]) -> Iterator[ClusterFinding]:
        self.on_step(f"connecting to the store from {len(nodes)} nodes")
        if self.store_url == "embedded":
            is_alone = len(nodes) < 2
            yield ClusterFinding(
                node=CLUSTER,
                check="store",
                state="ok" if is_alone else "failed",
                detail="the embedded store, which serves one host",
                remedy="" if is_alone else "set store.url to the DSN of a Postgres that all nodes reach",
            )
            return
        for answer in run_on_nodes(measure_reach, [self.store_url], nodes, self.timeout):
            yield from judge_store(answer)


def supply_program(programs: Sequence[NodeProgram], timeout: float) -> Iterator[ClusterFinding]:
    """Ships the program if nodes lack it. Yields a finding if that is impossible."""
    try:
        if describe_reasons(programs):
            ship_program(programs, UNLIMITED, timeout)
    except ClusterError as error:
        yield ClusterFinding(
            node=CLUSTER, check="shipping", state="failed", detail=str(error), remedy="install rag-on-ray on the nodes"
        )


def check_metrics(nodes: Sequence[Node]) -> Iterator[ClusterFinding]:
    """Requests the metrics of each node from this machine, as Prometheus does from its own."""
    with ThreadPoolExecutor() as threads:
        errors = threads.map(lambda node: probe_http(node.address, node.metrics_port, "/metrics"), nodes)
        for node, error in zip(nodes, errors, strict=True):
            yield judge_metrics(node, error)


def check_dashboard() -> ClusterFinding:
    """The dashboard receives submitted jobs. A cluster can do without it."""
    import ray

    context: Any = ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    url = str(context.address_info["webui_url"] or "")
    host, _, port = url.rpartition(":")
    reason = probe_http(host, int(port), "/api/version") if port else "it is not running"
    return ClusterFinding(
        node=CLUSTER,
        check="dashboard",
        state="warning" if reason else "ok",
        detail=f"{url}: {reason}" if reason else f"{url} answers",
        remedy="jobs cannot be submitted: see dashboard.log on the head, below its folder of Ray" if reason else "",
    )
