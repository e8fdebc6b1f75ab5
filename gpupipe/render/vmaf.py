"""VMAF by an ffmpeg program that has libvmaf, since PyAV's wheels do not: pairs of pictures go into its stdin."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import tempfile
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path

import av

from gpupipe.errors import MediaError


class Vmaf:
    """VMAF by an ffmpeg program with libvmaf (PyAV has none): pairs go into its stdin one after the other."""

    name = "vmaf"

    def __init__(self) -> None:
        self._pts: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="gpupipe-vmaf-")

    def add(self, pts: int, made: av.VideoFrame, reference: av.VideoFrame) -> None:
        """One pair; `made` is what was encoded."""
        if self._process is None:
            self._start(made)
        assert self._process is not None
        assert self._process.stdin is not None
        self._pts.append(pts)
        try:
            for frame in (made, reference):
                self._process.stdin.write(self._bytes(frame))
        except OSError:
            raise self._failed() from None

    def _bytes(self, frame: av.VideoFrame) -> bytes:
        """As `-f rawvideo` reads them: to_ndarray repeats the chroma of some formats (10-bit 4:2:2) to full size."""
        (packet,) = self._raw.encode(frame)
        return bytes(packet)

    def _start(self, made: av.VideoFrame) -> None:
        self._raw = av.CodecContext.create("rawvideo", "w")
        self._raw.width, self._raw.height, self._raw.pix_fmt = made.width, made.height, made.format.name
        self._raw.time_base = Fraction(1, 50)
        program = vmaf_program()
        assert program is not None
        every = "setpts=N/25/TB,settb=1/25"
        graph = (
            rf"split[x][y];[x]select=not(mod(n\,2)),{every}[made];[y]select=mod(n\,2),{every}[reference];"
            f"[made][reference]libvmaf=log_fmt=json:log_path=vmaf.json:n_threads=2"
        )
        command = [
            program, "-v", "error", "-f", "rawvideo", "-pix_fmt", made.format.name.replace("yuvj", "yuv"),
            "-s", f"{made.width}x{made.height}", "-r", "50", "-i", "-", "-filter_complex", graph, "-f", "null", "-",
        ]  # fmt: skip
        with (Path(self._folder.name) / "said").open("wb") as said:
            self._process = subprocess.Popen(  # noqa: S603  no shell, and every word is ours
                command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=said, cwd=self._folder.name
            )

    def finish(self) -> tuple[list[int], list[float], float]:
        """(pts, score of each pair, score of all)."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait() != 0:
            raise self._failed()
        data = json.loads((Path(self._folder.name) / "vmaf.json").read_text(encoding="utf-8"))
        values = [float(frame["metrics"]["vmaf"]) for frame in data["frames"]]
        if len(values) != len(self._pts):
            raise MediaError(f"libvmaf compared {len(values)} pictures, got {len(self._pts)}", where="quality")
        return self._pts, values, float(data["pooled_metrics"]["vmaf"]["mean"])

    def _failed(self) -> MediaError:
        said = (Path(self._folder.name) / "said").read_text(encoding="utf-8", errors="replace").strip()
        return MediaError(f"libvmaf failed: {said.splitlines()[-1] if said else 'no reason given'}", where="quality")

    def close(self) -> None:
        """Ends the program where it still runs."""
        if self._process is not None:
            if self._process.stdin is not None:
                with suppress(OSError):
                    self._process.stdin.close()
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()


@cache
def vmaf_program() -> str | None:
    """An ffmpeg that has libvmaf: that on PATH, or imageio-ffmpeg's."""
    found = [shutil.which("ffmpeg")]
    if importlib.util.find_spec("imageio_ffmpeg") is not None:
        from imageio_ffmpeg import get_ffmpeg_exe  # noqa: PLC0415  optional

        found.append(get_ffmpeg_exe())
    for program in filter(None, found):
        said = subprocess.run([program, "-hide_banner", "-filters"], capture_output=True, text=True, check=False)  # noqa: S603
        if " libvmaf " in said.stdout:
            return program
    return None
