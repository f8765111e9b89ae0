"""The part of KubeRay's custom resources that the chart uses. An unknown key is an error."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict


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


class WorkerGroup(HeadGroup):
    groupName: str
    replicas: int
    minReplicas: int
    maxReplicas: int


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


RAY_KINDS: dict[str, type[Strict]] = {
    "RayCluster": RayClusterSpec,
    "RayJob": RayJobSpec,
    "RayService": RayServiceSpec,
}
