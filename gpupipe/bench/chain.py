"""What is measured where no config is given: warp and overlay, and the encoders that `--encode` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import av
import numpy as np

from gpupipe.config import Config, VideoOutput, parse_config

if TYPE_CHECKING:
    from pathlib import Path

ENCODES = {
    "mjpeg": VideoOutput(codec="mjpeg", quality=90),
    "x264": VideoOutput(codec="h264", encoder="libx264", quality=23, preset="veryfast"),
    "x265": VideoOutput(codec="hevc", encoder="libx265", quality=26, preset="ultrafast"),
    "nvenc": VideoOutput(codec="h264", encoder="nvenc"),
    "prores": VideoOutput(codec="prores"),
    "prores_torch": VideoOutput(codec="prores", encoder="prores_torch"),
    "ffv1": VideoOutput(codec="ffv1"),
}
SIDE = 256


def built_in(folder: Path) -> Config:
    """The chain, with an image that is written to `folder`; encoded as the first of `ENCODES`."""
    image = folder / "overlay.png"
    _disc(image)
    stages = [
        {"warp": {"rotate": 1.5, "scale": 1.02}},
        {"overlay": {"image": str(image), "anchor": "top-right", "opacity": 0.6, "margin": 32}},
    ]
    return encoded(parse_config({"stages": stages}), "mjpeg")


def encoded(config: Config, name: str) -> Config:
    """The config with another encoder: a name in `ENCODES`."""
    output = config.output.model_copy(update={"video": ENCODES[name], "path": None})
    return config.model_copy(update={"output": output})


def _disc(path: Path) -> None:
    """A disc with a soft edge, as a PNG with straight alpha."""
    y, x = np.mgrid[0:SIDE, 0:SIDE] - (SIDE - 1) / 2
    alpha = np.clip(SIDE / 2 - np.hypot(x, y), 0, 16) / 16
    picture = np.empty((SIDE, SIDE, 4), np.uint8)
    picture[..., :3] = (240, 160, 40)
    picture[..., 3] = np.rint(255 * alpha)
    with av.open(str(path), "w", format="image2", options={"update": "1"}) as container:
        stream = container.add_stream("png")
        assert isinstance(stream, av.VideoStream)
        stream.width, stream.height, stream.pix_fmt = SIDE, SIDE, "rgba"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgba")))
        container.mux(stream.encode(None))
