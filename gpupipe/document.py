"""Reads the YAML of a config or card without YAML's traps."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import yaml
from yaml.constructor import ConstructorError

from gpupipe.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

LARGEST = 100_000
"""Values in a config once every alias is written out; a few nested ones grow to billions ('YAML bomb')."""
_MERGE = "tag:yaml.org,2002:merge"
_TEXT = "tag:yaml.org,2002:str"
_AS_WRITTEN = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp", "value")}


class _Loader(yaml.SafeLoader):
    """What looks like a text is one: 00:10:00 is no number in base 60, off and no are words, and so is every key.

    A key given twice is an error.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise ConstructorError(None, None, "a key is a word, not a list or mapping", key.start_mark)
            if key.tag != _MERGE:
                key.tag = _TEXT
            if key.value in seen:
                raise ConstructorError(None, None, f"the key '{key.value}' stands twice", key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)

    def construct_scalar(self, node: yaml.ScalarNode | yaml.MappingNode) -> str:
        text = super().construct_scalar(node)
        if "\0" in text:
            raise ConstructorError(None, None, "a text cannot hold a NUL character", node.start_mark)
        return text


_Loader.yaml_implicit_resolvers = {
    first: [(tag, regex) for tag, regex in resolvers if tag not in _AS_WRITTEN]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(true|false|True|False|TRUE|FALSE)$"), list("tfTF")
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9]{0,17})$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))([eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


def _extent(node: yaml.Node, above: set[int], known: dict[int, int]) -> int:
    """Values below a node with every alias written out. Raises ConstructorError where there are too many or no end."""
    if id(node) in known:
        return known[id(node)]
    if id(node) in above:
        raise ConstructorError(None, None, "refers to itself", node.start_mark)
    children: list[yaml.Node] = []
    if isinstance(node, yaml.MappingNode):
        children = [part for pair in node.value for part in pair]
    elif isinstance(node, yaml.SequenceNode):
        children = node.value
    above.add(id(node))
    known[id(node)] = 1 + sum(_extent(child, above, known) for child in children)
    above.discard(id(node))
    if known[id(node)] > LARGEST:
        raise ConstructorError(None, None, f"grows to more than {LARGEST} values by its aliases", node.start_mark)
    return known[id(node)]


def _parse(text: str) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _extent(node, set(), {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def read_document(path: Path, kind: str = "config") -> Any:
    """The one document of a YAML file, which errors call `kind`, as plain data. Raises ConfigError naming the line."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        hint = "a config is YAML, see configs/" if kind == "config" else f"a {kind} is YAML"
        raise ConfigError("is not a text file in UTF-8", where=str(path), hint=hint) from None
    except OSError as error:
        raise ConfigError(f"cannot read the {kind}: {error.strerror}", where=str(path)) from None
    try:
        return _parse(text)
    except RecursionError:
        raise ConfigError("not valid YAML: nested too deeply", where=str(path)) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if "'\\t'" in problem:
            problem += "; indent with spaces"
        raise ConfigError(f"not valid YAML: {problem}", where=line) from None
