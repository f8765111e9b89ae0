"""The part of KubeRay's custom resources that the chart uses. An unknown key is an error.

The operator has rules that its definitions do not express; those that concern the chart are checked here too.
"""

from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

NAME = r"[a-z]([-a-z0-9]*[a-z0-9])?"
MAX_NAME = 47
"""The length of the name of a RayJob or RayService; a RayCluster's can be longer."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AutoscalerOptions(Strict):
    version: Literal["v2"]
    idleTimeoutSeconds: int
    upscalingMode: Literal["Default", "Aggressive", "Conservative"]
    securityContext: dict[str, Any]
    resources: dict[str, Any]
    env: list[dict[str, Any]]
    volumeMounts: list[dict[str, Any]]


class AuthOptions(Strict):
    mode: Literal["token"]
    secretName: str


class HeadGroup(Strict):
    rayStartParams: dict[str, str]
    template: dict[str, Any]

    @model_validator(mode="after")
    def _check_restarts(self) -> Self:
        if self.template["spec"]["restartPolicy"] != "Never":
            raise ValueError("restartPolicy must be Never with the autoscaler v2")
        return self


class WorkerGroup(HeadGroup):
    groupName: str
    replicas: int
    minReplicas: int
    maxReplicas: int

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if not 0 <= self.minReplicas <= self.replicas <= self.maxReplicas:
            raise ValueError(f"the replicas of {self.groupName} must be between their limits")
        return self


class ClusterSpec(Strict):
    rayVersion: str
    enableInTreeAutoscaling: bool
    autoscalerOptions: AutoscalerOptions
    authOptions: AuthOptions
    headGroupSpec: HeadGroup
    workerGroupSpecs: list[WorkerGroup]


class UpgradeStrategy(Strict):
    type: Literal["NewCluster", "Recreate"]


class RayClusterSpec(ClusterSpec):
    upgradeStrategy: UpgradeStrategy


class RayServiceSpec(Strict):
    upgradeStrategy: UpgradeStrategy
    rayClusterDeletionDelaySeconds: int
    excludeHeadPodFromServeSvc: bool
    serveConfigV2: str
    rayClusterConfig: ClusterSpec


class RayJobSpec(Strict):
    entrypoint: str
    submissionMode: Literal["K8sJobMode"]
    backoffLimit: int
    submitterPodTemplate: dict[str, Any]
    activeDeadlineSeconds: int | None = None
    clusterSelector: dict[str, str] = {}
    rayClusterSpec: ClusterSpec | None = None
    shutdownAfterJobFinishes: bool = False
    ttlSecondsAfterFinished: int = 0

    @model_validator(mode="after")
    def _check_selector(self) -> Self:
        if bool(self.clusterSelector) == bool(self.rayClusterSpec):
            raise ValueError("a job has either clusterSelector or rayClusterSpec")
        if self.clusterSelector and (self.backoffLimit or self.shutdownAfterJobFinishes):
            raise ValueError("a job on a standing cluster is not tried again, and does not end the cluster")
        if self.ttlSecondsAfterFinished and not self.shutdownAfterJobFinishes:
            raise ValueError("ttlSecondsAfterFinished requires shutdownAfterJobFinishes")
        return self


RAY_KINDS: dict[str, type[Strict]] = {
    "RayCluster": RayClusterSpec,
    "RayJob": RayJobSpec,
    "RayService": RayServiceSpec,
}
