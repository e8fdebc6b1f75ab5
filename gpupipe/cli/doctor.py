"""`gpupipe doctor`: what this machine can do."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import click

from gpupipe.cli.options import as_json
from gpupipe.codecs.capability import CHROMA
from gpupipe.doctor import examine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpupipe.cli.console import Console
    from gpupipe.codecs.capability import DecoderRow, DecoderTable, EncoderTable
    from gpupipe.doctor import GpuReport, Library, Report


@click.command(name="doctor", short_help="Print what this machine can do.")
@as_json
@click.pass_obj
def command(console: Console, *, as_json: bool) -> None:
    """Print driver, GPUs, what NVDEC and NVENC can do, library versions, and a hint for what is missing."""
    report = examine()
    if as_json:
        console.json(report)
    else:
        console.data(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    yield f"{'gpupipe':<16}{report.gpupipe}"
    yield f"{'python':<16}{report.python}, {report.platform}"
    found = report.driver
    if found.version or found.cuda:
        yield f"{'driver':<16}{found.version or 'of unknown version'}, runs CUDA up to {found.cuda or 'unknown'}"
    if found.reason:
        yield f"{'gpu':<16}none: {found.reason}"
    if report.driver_hint:
        yield f"{'':<16}-> {report.driver_hint}"
    for gpu in report.gpus:
        yield from _gpu(gpu)
    for library in report.libraries:
        yield from _library(library)


def _library(library: Library) -> Iterator[str]:
    version = library.version or ""
    if library.problem:
        yield f"{library.name:<16}{version}{', ' if version else ''}{library.problem}"
        yield f"{'':<16}-> {library.hint}"
        return
    yield f"{library.name:<16}{version}"
    if library.detail:
        yield f"{'':<16}{library.detail}"


def _gpu(report: GpuReport) -> Iterator[str]:
    gpu, place = report.gpu, f"cuda:{report.gpu.index}"
    yield f"{place:<16}{gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB, compute capability {gpu.compute_capability}"
    yield from _nvdec(report.nvdec)
    yield from _nvenc(report.nvenc)


def _nvdec(table: DecoderTable) -> Iterator[str]:
    """A line a codec: the depths it takes in each chroma format, and the largest picture."""
    if table.reason:
        yield f"{'  NVDEC':<16}no: {table.reason}"
        return
    plural = "" if table.engines == 1 else "s"
    yield f"{'  NVDEC':<16}{table.engines} engine{plural}; bits a sample by codec and chroma:"
    yield f"{'':<16}{'':<11}" + "".join(f"{chroma:<10}" for chroma in CHROMA) + "up to"
    for codec, rows in groupby(table.rows, key=lambda row: row.codec):
        yield f"{'':<16}{codec:<11}{_depths(tuple(rows))}"


def _depths(rows: tuple[DecoderRow, ...]) -> str:
    cells = []
    for chroma in CHROMA:
        depths = [str(row.depth) for row in rows if row.chroma == chroma and row.supported]
        cells.append(f"{' '.join(depths) or '-':<10}")
    largest = max(((row.max_width, row.max_height) for row in rows if row.supported), default=None)
    return "".join(cells) + (f"{largest[0]}x{largest[1]}" if largest else "-")


def _nvenc(table: EncoderTable) -> Iterator[str]:
    if table.reason:
        yield f"{'  NVENC':<16}no: {table.reason}"
        return
    yield f"{'  NVENC':<16}yes"
    for row in table.rows:
        if not row.supported:
            yield f"{'':<16}{row.codec:<11}no: {row.reason}"
            continue
        extras = [name for name, there in (("10 bit", row.ten_bit), ("4:4:4", row.yuv444)) if there]
        extras.append(f"up to {row.max_b_frames} B-frames, {row.max_width}x{row.max_height}")
        yield f"{'':<16}{row.codec:<11}{', '.join(extras)}"
