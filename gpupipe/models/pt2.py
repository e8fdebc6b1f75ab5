"""`.pt2` files of torch.export as plain torch modules, without torch.export.load.

That function unpickles sample inputs and constants, evaluates the guards' source and loads compiled code that lie in
the file. Here its JSON graph and its raw weights are read, and each node must be an operator of aten or arithmetic on
sizes; everything else in the file is passed over or refused.
"""

from __future__ import annotations

import json
import math
import operator
import re
import struct
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from gpupipe.errors import MediaError, first_line
from gpupipe.models.graph import Graph, Step

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_SCHEMA = 8
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, KeyError, TypeError, RuntimeError, IndexError,
           AttributeError, OverflowError, struct.error, RecursionError)  # fmt: skip
_KINDS = {
    1: torch.uint8, 2: torch.int8, 3: torch.int16, 4: torch.int32, 5: torch.int64, 6: torch.float16,
    7: torch.float32, 8: torch.float64, 12: torch.bool, 13: torch.bfloat16,
}  # fmt: skip
_ATEN = re.compile(r"torch\.ops\.aten\.([a-z_][a-z0-9_]*)\.([A-Za-z_][A-Za-z0-9_]*)")
_FORBIDDEN = {"from_file", "set_", "resize_", "resize_as_"}
"""Operators that reach beyond their tensors; those that give no tensor, such as aten::save, are refused anyway."""
_FILLED = {"ones", "zeros", "empty", "linspace", "scalar_tensor"}
"""Operators that make floating values where they are given no type."""
_CHECKS = {"_assert_scalar", "_assert_tensor_metadata", "sym_constrain_range", "sym_constrain_range_for_size"}
"""Operators without a result that only look whether sizes are what the exporter saw."""
_ARITHMETIC = ("add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge")
_SIZES: dict[str, Callable[..., Any]] = {
    **{f"_operator.{name}": getattr(operator, name) for name in _ARITHMETIC},
    "math.ceil": math.ceil, "math.floor": math.floor, "math.trunc": math.trunc, "torch.sym_float": torch.sym_float,
    "torch.sym_int": torch.sym_int, "torch.sym_max": torch.sym_max, "torch.sym_min": torch.sym_min,
    "torch.sym_not": torch.sym_not,
}  # fmt: skip


def read(path: Path) -> Graph:
    """The network in evaluation mode, floating values in fp32; what was exported as dynamic stays so.

    Raises MediaError where the file cannot be read, or holds what is not read (the node is named).
    """
    where = str(path)
    try:
        with zipfile.ZipFile(path) as archive:
            records = {name.partition("/")[2]: name for name in archive.namelist()}
            if "models/model.json" not in records:
                raise MediaError("is no .pt2 of torch.export 2.9 or newer", where=where, hint="export it again")
            model = json.loads(archive.read(records["models/model.json"]))
            if model["schema_version"]["major"] != _SCHEMA:
                raise MediaError(f"has schema {model['schema_version']['major']}, only {_SCHEMA} is read", where=where)
            tensors = {
                **_tensors(archive, records, "weights", where),
                **_tensors(archive, records, "constants", where),
            }
        return _graph(model["graph_module"], tensors, where)
    except OSError as error:
        raise MediaError(f"cannot be read: {error.strerror or first_line(error)}", where=where) from error
    except _DAMAGE as error:
        raise MediaError(f"is damaged or not read: {first_line(error)}", where=where) from error


def _tensors(archive: zipfile.ZipFile, records: Mapping[str, str], kind: str, where: str) -> dict[str, torch.Tensor]:
    config = json.loads(archive.read(records[f"data/{kind}/model_{kind}_config.json"]))["config"]
    found = {}
    for name, entry in config.items():
        meta = entry["tensor_meta"]
        if entry["use_pickle"] or meta is None:
            raise MediaError(f"{name} is pickled, which is not read", where=where)
        data = archive.read(records[f"data/{kind}/{entry['path_name']}"])
        values = torch.frombuffer(bytearray(data), dtype=_KINDS[meta["dtype"]]) if data else torch.empty(0)
        sizes, strides = ([side["as_int"] for side in meta[key]] for key in ("sizes", "strides"))
        value = values.as_strided(sizes, strides, meta["storage_offset"]["as_int"]).clone()
        found[name] = value.float() if value.is_floating_point() else value
    return found


def _graph(module: dict[str, Any], tensors: dict[str, torch.Tensor], where: str) -> Graph:
    graph, signature = module["graph"], module["signature"]
    inputs, constants, names = [], {}, {}
    for entry in signature["input_specs"]:
        ((kind, spec),) = entry.items()
        if kind == "user_input" and "as_tensor" in spec["arg"]:
            inputs.append(spec["arg"]["as_tensor"]["name"])
        elif kind in {"parameter", "buffer", "tensor_constant"}:
            names[spec["arg"]["name"]] = spec[f"{kind}_name"]
            constants[spec["arg"]["name"]] = tensors[spec[f"{kind}_name"]]
        else:
            raise MediaError(f"an input of kind {kind} is not read", where=where)
    outputs = []
    for entry in signature["output_specs"]:
        ((kind, spec),) = entry.items()
        if kind != "user_output" or "as_tensor" not in spec["arg"]:
            raise MediaError(f"an output of kind {kind} is not read", where=where)
        outputs.append(spec["arg"]["as_tensor"]["name"])
    steps = [step for node in graph["nodes"] if (step := _step(node, where)) is not None]
    made = Graph(inputs, outputs, steps, constants, {}, names=names, sizes=_sizes(graph, inputs))
    return made.eval().requires_grad_(requires_grad=False)


def _sizes(graph: dict[str, Any], inputs: list[str]) -> list[list[int | None]]:
    return [[side.get("as_int") for side in graph["tensor_values"][name]["sizes"]] for name in inputs]


def _step(node: dict[str, Any], where: str) -> Step | None:
    target = node["target"]
    found = _ATEN.fullmatch(target)
    if found and found[1] in _CHECKS:
        return None
    if target in _SIZES:
        function = _SIZES[target]
    else:
        overload = _aten(found)
        if overload is None:
            raise MediaError(f"the operator {target} is not read", where=f"{where}: node {node['name']}")
        function = overload
    names: list[str] = []
    positional = [_argument(entry["arg"], names) for entry in node["inputs"] if entry.get("kind", 1) == 1]
    named = {entry["name"]: _argument(entry["arg"], names) for entry in node["inputs"] if entry.get("kind", 1) == 2}
    if found and found[1] in _FILLED:
        named.setdefault("dtype", _Own("dtype"))
    listed = [out["as_tensors"] for out in node["outputs"] if "as_tensors" in out]
    results = listed[0] if listed else [_only(out) for out in node["outputs"]]
    given = tuple(one["name"] if isinstance(one, dict) else one for one in results)
    return Step(_Call(function, positional, named, single=bool(listed) and len(given) == 1), tuple(names), given)


def _aten(found: re.Match[str] | None) -> Callable[..., Any] | None:
    """An operator that makes tensors, or sizes, from its arguments and leaves everything else alone."""
    if found is None or found[1] in _FORBIDDEN or found[2].endswith("out"):
        return None
    overload = getattr(getattr(torch.ops.aten, found[1], None), found[2], None)
    if overload is None:
        return None
    given = {str(one.type) for one in overload._schema.returns}  # noqa: SLF001  (where torch has it)
    makes = given and (given <= {"Tensor", "List[Tensor]"} or found[1].startswith("sym_"))
    return overload if makes else None


def _only(out: dict[str, Any]) -> str:
    ((kind, value),) = out.items()
    if kind not in {"as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"}:
        raise ValueError(f"a result {kind}")
    return str(value.get("name", value.get("as_name")))


class _Value:
    """The n-th of what a step takes while it runs."""

    def __init__(self, index: int) -> None:
        self.index = index


class _Own:
    """Device or precision of the module itself, in place of that of the exporting machine."""

    def __init__(self, what: str) -> None:
        self.what = what


def _argument(arg: dict[str, Any], names: list[str]) -> Any:  # noqa: PLR0911  (a table of kinds)
    """A literal, or a place to be filled while it runs."""
    ((kind, value),) = arg.items()
    if kind == "as_none":
        return None
    if kind in {"as_int", "as_float", "as_bool", "as_string", "as_ints", "as_floats", "as_bools"}:
        return value
    if kind in {"as_tensors", "as_sym_ints", "as_sym_floats", "as_sym_bools", "as_optional_tensors"}:
        inner = {"as_tensors": "as_tensor", "as_optional_tensors": None}.get(kind, kind[:-1])
        return [_argument({inner: one} if inner else one, names) for one in value]
    if kind in {"as_tensor", "as_sym_int", "as_sym_float", "as_sym_bool"}:
        if "name" not in value and "as_name" not in value:
            ((_, literal),) = value.items()
            return literal
        names.append(value["name"] if "name" in value else value["as_name"])
        return _Value(len(names) - 1)
    if kind == "as_scalar_type":
        return _Own("dtype") if _KINDS[value].is_floating_point else _KINDS[value]
    if kind == "as_device":
        return _Own("device")
    if kind in {"as_memory_format", "as_layout"}:
        return None
    raise ValueError(f"an argument {kind}")


class _Call(nn.Module):
    """One operator with its literals in place."""

    like: torch.Tensor

    def __init__(
        self, function: Callable[..., Any], positional: list[Any], named: dict[str, Any], *, single: bool
    ) -> None:
        super().__init__()
        self._function, self._positional, self._named, self._single = function, positional, named, single
        self.register_buffer("like", torch.empty(0), persistent=False)

    def forward(self, *values: Any) -> Any:
        out = self._function(
            *[self._filled(part, values) for part in self._positional],
            **{name: self._filled(part, values) for name, part in self._named.items()},
        )
        return out[0] if self._single else out

    def _filled(self, part: Any, values: tuple[Any, ...]) -> Any:
        if isinstance(part, list):
            return [self._filled(one, values) for one in part]
        if isinstance(part, _Value):
            return values[part.index]
        return getattr(self.like, part.what) if isinstance(part, _Own) else part
