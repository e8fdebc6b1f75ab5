"""Faces: how well they are found, how calm they stand, what is left of those that are hidden, on clips made of stills.

    python bench/faces_found.py [--device cpu] [--frames 20] [--cache FOLDER] [--json bench/results/faces_found.json]

Each still of `../shared/corpus/faces` moves in pictures of 480x270 with noise of 1 %: pan, zoom, roll, brightness, all
of them, and close, where the face fills the picture while it zooms. Where a point is follows from the move. Distances
are in parts of the face's width, jitter is the root mean square of what the error changes by from frame to frame, lag
is in frames. The points of the portrait were not read off by eye but found by the detector, so that `eyes` says little
of it. Then `configs/anonymise.yaml` on the same clips: the highest score of a face in what comes out, and how far
dlib's embedding of it lies from the original's, beside that of a grey picture, which is as far as anything gets.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "faces"))
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as the command line does; read when torch is loaded

import torch
import yaml
from clips import Move, frames, path, truth  # type: ignore[import-not-found]
from stills_of_faces import ASTRONAUT_POINTS, DALI_POINTS  # type: ignore[import-not-found]

from bench.measured import ROOT, head, keep
from gpupipe import stages
from gpupipe.faces.found import joined
from gpupipe.format import PIXEL_FORMATS, FrameFormat
from gpupipe.journal import Journal
from gpupipe.models import folder
from gpupipe.models.card import find
from gpupipe.models.fetch import fetch

SIZE = (480, 270)
PORTRAIT_POINTS = torch.tensor([[301.7, 207.6], [340.2, 208.5], [323.8, 232.0], [301.3, 249.6], [332.9, 250.4]])
STILLS = {
    "astronaut_512.png": ((225.0, 120.0), 1.0, ASTRONAUT_POINTS),
    "dali_face_1.jpeg": ((450.0, 400.0), 0.35, DALI_POINTS),
    "portrait_pd.jpg": ((310.0, 200.0), 1.0, PORTRAIT_POINTS),
}
MOVES = {
    "pan": {"pan": 4.0}, "zoom": {"zoom": 0.8}, "roll": {"roll": 2.0}, "light": {"light": 0.5},
    "all": {"pan": 2.0, "zoom": 0.4, "roll": 1.0, "light": 0.3}, "close": {"zoom": 0.8},
}  # fmt: skip
CLOSER = 1.5


@dataclass
class Row:
    """One clip."""

    still: str
    move: str
    found: float
    """Frames in which the face is found."""
    eyes: float
    """Median distance from where they are."""
    jitter: float
    """Of the detector alone."""
    calm: float
    """Part of it that is left."""
    lag: float | None
    score: float
    """Highest of a face after anonymise."""
    distance: float
    """Least, from the original's embedding."""
    blank: float
    """The same of grey."""


def made(settings: dict[str, object], device: str) -> Any:
    """The stage, prepared."""
    kind = stages.load("face")
    stage = kind(kind.Settings.model_validate(settings, strict=False))
    stage.attend(Journal(), 1)
    stage.prepare(FrameFormat(PIXEL_FORMATS["rgbf32"], *SIZE, device=device))
    return stage


def looked(stage: Any, rgb: torch.Tensor) -> Any:
    """Faces of every frame."""
    memory = stage.remember()
    return joined([stage._line.look(one, memory.tensors, n)[0].faces for n, one in enumerate(torch.split(rgb, 1))], 0)  # noqa: SLF001


def row(still: str, name: str, watching: tuple[Any, ...], args: argparse.Namespace) -> Row:
    """Makes a clip and looks at it."""
    centre, scale, points = STILLS[still]
    torch.manual_seed(1)
    move = path(args.frames, SIZE, centre, scale * (CLOSER if name == "close" else 1), **MOVES[name])
    rgb = frames(still, move, SIZE)
    rgb = (rgb + 0.01 * torch.randn(rgb.shape)).clamp(0, 1).to(args.device)
    calm, raw, hiding, finding = watching
    return Row(still, name, *_motion(move, points, looked(calm, rgb), looked(raw, rgb)), *_left(rgb, hiding, finding))


def _motion(move: Move, points: torch.Tensor, calm: Any, raw: Any) -> tuple[float, float, float, float, float | None]:
    true = truth(points.double(), move)
    boxes, each = calm.boxes.cpu(), torch.arange(len(true))
    nearest = [(f.points.cpu() - true[:, None]).square().sum((-1, -2)).argmin(1) for f in (calm, raw)]
    ours, theirs = (f.points.cpu()[each, at] - true for f, at in zip((calm, raw), nearest, strict=True))
    wide = (boxes[..., 2] - boxes[..., 0])[each, nearest[0]].double()
    eyes = float((torch.linalg.vector_norm(ours[:, :2], dim=-1) / wide[:, None]).median())
    jitter = [float((e[4:].diff(dim=0) / wide[5:, None, None]).square().mean().sqrt()) for e in (theirs, ours)]
    speed, away = true[4:].diff(dim=0), (ours[4:] - ours[4:].mean(0))[1:]
    moves = float(speed.abs().mean()) > 0.5
    lag = -float((away * speed).sum() / speed.square().sum()) if moves else None
    return float(raw.valid.any(1).float().mean()), eyes, jitter[0], jitter[1] / jitter[0], lag


def _left(rgb: torch.Tensor, hiding: Any, finding: Any) -> tuple[float, float, float]:
    memory, out = hiding.remember(), []
    for one in torch.split(rgb, 1):
        out.append(hiding.follow((one,), memory)[0])
        memory.number += 1
    after = looked(finding, torch.cat(out))
    score = float(torch.where(after.valid, after.scores, 0.0).amax())
    far = []
    for n in range(0, len(rgb), 6):
        known = looked(hiding, rgb[n : n + 1])
        identity, number = hiding._line._sight._embed, int(known.valid.sum())  # noqa: SLF001
        who, left, blank = (
            identity(picture, known, number)[known.valid]
            for picture in (rgb[n : n + 1], out[n], torch.full_like(out[n], 0.5))
        )
        far.append([torch.linalg.vector_norm(x - who, dim=-1) for x in (left, blank)])
    distance, blank = (torch.cat(part) for part in zip(*far, strict=True))
    least = int(distance.argmin())
    return score, float(distance[least]), float(blank[least])


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--stills", nargs="*", default=list(STILLS), choices=list(STILLS))
    parser.add_argument("--moves", nargs="*", default=list(MOVES), choices=list(MOVES))
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def main() -> None:
    """Clip by clip, then the picture without a face."""
    args = _arguments()
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        folder.choose(args.cache or Path(scratch))
        for name in ("centerface", "dlib-face-embedding"):
            fetch(find(name), folder.weights(), allowed={name})
        config = yaml.safe_load((ROOT / "configs" / "anonymise.yaml").read_text(encoding="utf-8"))
        hidden = config["stages"][0]["face"]
        watching = (
            made({"detect": {"most": 3}}, args.device),
            made({"detect": {"most": 3}, "smooth": "off"}, args.device),
            made({**hidden, "track": {**hidden["track"], "embedding": True}}, args.device),
            made({"detect": {"score": 0.05, "refine": False}, "track": {"hold": 0}, "smooth": "off"}, args.device),
        )
        report: dict[str, Any] = {**head(args.device), "rows": []}
        print("still              move   found   eyes  jitter   left    lag   score  distance  blank")
        for still, name in itertools.product(args.stills, args.moves):
            one = row(still, name, watching, args)
            lag = "     -" if one.lag is None else f"{one.lag:6.2f}"
            print(
                f"{still:18} {name:6} {one.found:5.0%} {one.eyes:6.2%}  {one.jitter:6.2%} {one.calm:6.2f} {lag}"
                f"  {one.score:6.2f} {one.distance:9.2f} {one.blank:6.2f}", flush=True,
            )  # fmt: skip
            report["rows"].append(asdict(one))
            keep(args.json, report)


if __name__ == "__main__":
    main()
