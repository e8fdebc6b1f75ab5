"""A job for a studio's queue: an Open Job Description template, https://github.com/OpenJobDescription, 2023-09.

One step renders the segments of a saved plan, a task each or some together; one that depends on it joins them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpupipe.plain import Plain
    from gpupipe.plan import Plan

VERSION = "jobtemplate-2023-09"
_LONGEST_NAME = 64
_NOTICE = 60
"""Seconds that a task which is cancelled has to end by itself."""
_MIB = 1 << 20


def template(plan: Plan, saved: str, *, together: int = 1, overwrite: bool = False) -> dict[str, Plain]:
    """The job for a plan.

    Args:
        plan: cut into segments that are kept.
        saved: name of the file where it is saved, beside the template.
        together: segments a task, which then share open files, graphs and networks.
        overwrite: whether the join may replace an output that exists.
    """
    last = len(plan.segments) - 1
    span = "0" if last == 0 else f"0-{last}" if together == 1 else f"0-{last}:{together}"
    segments = ["segment", "--openjd", "--count", str(together), "{{Param.Plan}}", "{{Task.Param.Segment}}"]
    join = ["join", "--openjd", *(["--overwrite"] if overwrite else []), "{{Param.Plan}}"]
    return {
        "specificationVersion": VERSION,
        "name": "".join(c if c.isprintable() else "?" for c in f"gpupipe {plan.output.name}")[:_LONGEST_NAME],
        "description": f"{plan.source.path.name} to {plan.output.name}: {last + 1} segments, then the join",
        "parameterDefinitions": [
            {
                "name": "Plan",
                "type": "PATH",
                "objectType": "FILE",
                "dataFlow": "IN",
                "default": saved,  # the standard joins it to the folder of the template
                "description": "What `gpupipe farm template` saved. Source and output are in it, by their paths.",
            },
            {
                "name": "Gpupipe",
                "type": "STRING",
                "default": "gpupipe",
                "description": "The program, as hosts find it.",
            },
        ],
        "steps": [
            {
                "name": "Segments",
                "parameterSpace": {"taskParameterDefinitions": [{"name": "Segment", "type": "INT", "range": span}]},
                **_hosts(plan),
                "script": _action(segments),
            },
            {
                "name": "Join",
                "dependencies": [{"dependsOn": "Segments"}],
                **_hosts(plan),
                "script": _action(join),
            },
        ],
    }


def _hosts(plan: Plan) -> dict[str, Plain]:
    """What a host must have. The join opens the encoder too, which tells it what the stream is."""
    if plan.device == "cpu":
        return {}
    amounts: list[Plain] = [{"name": "amount.worker.gpu", "min": 1}]
    if plan.device_bytes:
        amounts.append({"name": "amount.worker.gpu.memory", "min": -(-plan.device_bytes // _MIB)})
    return {"hostRequirements": {"amounts": amounts}}


def _action(words: list[str]) -> dict[str, Plain]:
    cancel: dict[str, Plain] = {"mode": "NOTIFY_THEN_TERMINATE", "notifyPeriodInSeconds": _NOTICE}
    return {"actions": {"onRun": {"command": "{{Param.Gpupipe}}", "args": [*words], "cancelation": cancel}}}
