"""HTML from templates: pages that carry all they need, so that they open anywhere without a network."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from gpupipe.report.image import jpeg, png, rgb

if TYPE_CHECKING:
    from jinja2 import Environment

    from gpupipe.render.stills import Picture, Still


@dataclass(frozen=True, slots=True)
class Comparison:
    """A picture before and after, for the slider."""

    title: str
    before: str
    """data: URL."""
    after: str
    before_size: str
    after_size: str
    shape: str
    """CSS aspect-ratio of the picture after, by its pixels' shape."""


def comparison(still: Still, width: int | None = None) -> Comparison:
    """With every bit as PNG, or as JPEG at most `width` pixels wide."""
    after = still.after.format
    shape = after.width * (after.sample_aspect or 1) / after.height
    return Comparison(
        f"{float(still.seconds):.3f} s", _url(still.before, width), _url(still.after, width),
        _size(still.before), _size(still.after), f"{float(shape):.6f}",
    )  # fmt: skip


def _size(picture: Picture) -> str:
    return f"{picture.format.width}x{picture.format.height} {picture.format.pixels.name}"


def _url(picture: Picture, width: int | None) -> str:
    samples = rgb(picture)
    if width is None:
        return data_url(png(samples, picture.format.color), "image/png")
    return data_url(jpeg(samples, width), "image/jpeg")


def data_url(content: bytes, kind: str) -> str:
    """A URL that holds its content."""
    return f"data:{kind};base64,{b64encode(content).decode()}"


def preview_page(title: str, subtitle: str, pictures: list[Comparison]) -> str:
    """Pictures before and after, each under a slider."""
    return render("preview.html", title=title, subtitle=subtitle, pictures=pictures)


def render(name: str, **values: object) -> str:
    """A template filled in; every value is escaped."""
    return _environment().get_template(name).render(values)


def resource(name: str) -> str:
    """A text file of this package."""
    return (files("gpupipe.report") / name).read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined  # noqa: PLC0415  only where a page is made

    return Environment(
        loader=FunctionLoader(lambda name: resource(f"templates/{name}")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
