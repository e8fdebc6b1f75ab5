"""What a RayJob may hold, for jsonschema: names and types as the API ray.io/v1 of KubeRay defines them.

Source: ray-operator/apis/ray/v1/rayjob_types.go and raycluster_types.go of github.com/ray-project/kuberay (1.4). The CRD
made from them is 1.2 MB, nearly all of it pod templates, which Kubernetes' own schema checks.
"""

from __future__ import annotations

STRING, INTEGER, BOOLEAN = {"type": "string"}, {"type": "integer"}, {"type": "boolean"}
NUMBER, OBJECT = {"type": "number"}, {"type": "object"}
STRINGS = {"type": "object", "additionalProperties": STRING}


def closed(required: tuple[str, ...] = (), **properties: object) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


HEAD = closed(
    ("rayStartParams", "template"), serviceType=STRING, headService=OBJECT, enableIngress=BOOLEAN,
    rayStartParams=STRINGS, template=OBJECT,
)  # fmt: skip
WORKERS = closed(
    ("groupName", "minReplicas", "maxReplicas", "rayStartParams", "template"), groupName=STRING, replicas=INTEGER,
    minReplicas=INTEGER, maxReplicas=INTEGER, numOfHosts=INTEGER, rayStartParams=STRINGS, template=OBJECT,
    scaleStrategy=OBJECT,
)  # fmt: skip
CLUSTER = closed(
    ("headGroupSpec",), headGroupSpec=HEAD, workerGroupSpecs={"type": "array", "items": WORKERS}, rayVersion=STRING,
    enableInTreeAutoscaling=BOOLEAN, autoscalerOptions=OBJECT, headServiceAnnotations=STRINGS, suspend=BOOLEAN,
)  # fmt: skip
SPEC = closed(
    activeDeadlineSeconds=INTEGER, backoffLimit=INTEGER, rayClusterSpec=CLUSTER, submitterPodTemplate=OBJECT,
    metadata=STRINGS, clusterSelector=STRINGS, submitterConfig=closed(backoffLimit=INTEGER),
    managedBy={"enum": ["ray.io/kuberay-operator", "kueue.x-k8s.io/multikueue"]}, deletionStrategy=OBJECT,
    entrypoint=STRING, runtimeEnvYAML=STRING, jobId=STRING,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]}, entrypointResources=STRING,
    entrypointNumCpus=NUMBER, entrypointNumGpus=NUMBER, ttlSecondsAfterFinished=INTEGER,
    shutdownAfterJobFinishes=BOOLEAN, suspend=BOOLEAN,
)  # fmt: skip
RAYJOB = closed(
    ("apiVersion", "kind", "metadata", "spec"), apiVersion={"const": "ray.io/v1"}, kind={"const": "RayJob"},
    metadata=OBJECT, spec=SPEC,
)  # fmt: skip
