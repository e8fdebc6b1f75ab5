"""ProRes against libav's prores_ks at the same profile, on whole frames of real clips and made pictures.

    python bench/prores_quality.py FOLDER [--json FILE] [--at 12] [--device cpu]

One frame of every clip in FOLDER (number `--at`, or its last), in 10-bit 4:2:2, and 4:4:4 for the 4444 profiles: bytes
against prores_ks', PSNR of both, and whether the frame keeps to the profile's published rate. The bytes are the same on
either device, so a CPU is enough; it takes a second or two a frame and profile at 1080p.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import av
import av.error
import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/codecs/prores")]
from prores_pictures import Planes, coded_by_ks, decoded, picture, planes_of, psnr, settings  # type: ignore[import-not-found]  # noqa: E402

from gpupipe.codecs.prores.coder import Coder  # noqa: E402
from gpupipe.codecs.prores.profile import PROFILES, Profile  # noqa: E402

PIXELS = {False: "yuv422p10le", True: "yuv444p10le"}
MADE = ("grain", "noise", "text", "gradient", "smooth")


@dataclass(frozen=True, slots=True)
class Row:
    """One frame in one profile."""

    picture: str
    profile: str
    size: str
    bytes: int
    bits_over_prores_ks: float
    psnr: float
    psnr_less_prores_ks: float
    of_published_rate: float

    @property
    def holds(self) -> bool:
        """The line of the issue."""
        return self.bits_over_prores_ks <= 1.02 and self.psnr_less_prores_ks >= -0.2


def frame_of(clip: Path, at: int) -> av.VideoFrame | None:
    """Frame `at` of the main video, or the last one before the end or the first damage."""
    found = None
    try:
        with av.open(str(clip)) as container:
            for number, frame in enumerate(container.decode(video=0)):
                found = frame
                if number == at:
                    break
    except (av.error.FFmpegError, IndexError):
        pass
    return found


def compare(name: str, planes: Planes, profile: Profile, device: str) -> Row:
    """Both coders on the same planes."""
    high, wide = planes[0].shape
    (rival,) = coded_by_ks([planes], profile.name)
    source = settings(wide, high, profile.name, pixels=PIXELS[profile.chroma_444]).input_format.with_(device=device)
    coder = Coder(source, profile)
    coded = coder.write(coder.choose(tuple(torch.from_numpy(p[None]).to(device) for p in planes)))
    data = coded.data.cpu().numpy().tobytes()[: coded.sizes[0]]
    ours, theirs = (psnr(decoded([d], wide, high)[0], planes) for d in (data, rival))
    macroblocks = -(-wide // 16) * -(-high // 16)
    return Row(
        name, profile.name, f"{wide}x{high}", len(data), round(len(data) / len(rival), 4), round(float(ours), 2),
        round(float(ours - theirs), 2), round(len(data) / profile.frame_bytes(macroblocks), 4),
    )  # fmt: skip


def pictures(folder: Path, at: int) -> dict[str, dict[bool, Planes]]:
    """By name, then by whether it is 4:4:4; odd widths are cut, which prores_ks drops a chroma column of."""
    found: dict[str, dict[bool, Planes]] = {
        kind: {full: picture(kind, 1920, 1080, full=full) for full in PIXELS} for kind in MADE
    }
    for clip in sorted(p for p in folder.iterdir() if p.is_file()):
        frame = frame_of(clip, at)
        if frame is None or min(frame.width, frame.height) < 16:
            continue
        even = frame.width // 2 * 2
        found[clip.name] = {
            full: tuple(
                np.ascontiguousarray(p[:, : even if full or not n else even // 2])
                for n, p in enumerate(planes_of(frame.reformat(format=pixels)))
            )
            for full, pixels in PIXELS.items()
        }
    return found


def summary(rows: list[Row]) -> dict[str, object]:
    """Of all rows of one profile."""
    return {
        "frames": len(rows),
        "hold": sum(row.holds for row in rows),
        "mean_bits_over_prores_ks": round(statistics.mean(r.bits_over_prores_ks for r in rows), 4),
        "median_psnr_less_prores_ks": round(statistics.median(r.psnr_less_prores_ks for r in rows), 2),
        "most_of_published_rate": max(r.of_published_rate for r in rows),
    }


def main() -> None:
    """Row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--at", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    rows: list[Row] = []
    for name, by_chroma in pictures(args.folder, args.at).items():
        for profile in PROFILES:
            row = compare(name, by_chroma[profile.chroma_444], profile, args.device)
            rows.append(row)
            print("" if row.holds else "EXCEPTION ", row, sep="", flush=True)
    facts = {
        "command": f"python bench/prores_quality.py FOLDER --at {args.at}",
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": {"torch": torch.__version__, "av": av.__version__},
        "line": "at most 2 % more bits than prores_ks and at most 0.2 dB less PSNR",
        "profiles": {p.name: summary([r for r in rows if r.profile == p.name]) for p in PROFILES},
        "exceptions": [asdict(row) for row in rows if not row.holds],
        "rows": [asdict(row) for row in rows],
    }
    if args.json:
        args.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
