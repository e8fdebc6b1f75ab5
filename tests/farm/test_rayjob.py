"""deploy/rayjob.yaml: a RayJob by KubeRay's API, its pods by Kubernetes' own schema, its command by ours."""

from __future__ import annotations

import copy
import shlex
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml
from rayjob_schema import RAYJOB

from gpupipe.cli.farm import command

MANIFEST = yaml.safe_load((Path(__file__).resolve().parents[2] / "deploy" / "rayjob.yaml").read_text())


def pods(manifest: dict) -> list[dict]:
    cluster = manifest["spec"]["rayClusterSpec"]
    return [group["template"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]


def check_pod(template: dict) -> None:
    wrapped = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": template}
    kubernetes_validate.validate(wrapped, kubernetes_validate.latest_version(), strict=True)


def test_it_is_a_rayjob() -> None:
    jsonschema.Draft202012Validator.check_schema(RAYJOB)
    jsonschema.validate(MANIFEST, RAYJOB)
    for template in pods(MANIFEST):
        check_pod(template)


def test_what_is_wrong_is_seen() -> None:
    wrong = copy.deepcopy(MANIFEST)
    wrong["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replica"] = 2
    with pytest.raises(jsonschema.ValidationError, match="replica"):
        jsonschema.validate(wrong, RAYJOB)
    pods(wrong)[1]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        check_pod(pods(wrong)[1])


def test_every_pod_sees_the_media_and_has_a_gpu() -> None:
    for template in pods(MANIFEST):
        (container,) = template["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": 1}
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/media"]


def test_the_entrypoint_is_a_command_of_ours() -> None:
    program, verb, *words = shlex.split(MANIFEST["spec"]["entrypoint"])
    assert (program, verb) == ("gpupipe", "farm")
    run = command.commands[words[0]]
    context = run.make_context("run", words[1:], resilient_parsing=False)
    assert context.params["address"] == "auto"
    assert {str(context.params[name]).split("/")[1] for name in ("config", "source", "output")} == {"media"}
