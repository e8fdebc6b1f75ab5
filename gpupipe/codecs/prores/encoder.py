"""ProRes as an encoder of the pipeline; only the bitstream leaves the device."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from gpupipe.codecs.described import DescribedEncoder
from gpupipe.codecs.intra import intra_packets
from gpupipe.codecs.native import planes_of
from gpupipe.codecs.prores.coder import Coded, Coder
from gpupipe.codecs.prores.profile import profile_of
from gpupipe.codecs.prores.repeated import Repeated
from gpupipe.device.staging import PinnedBytes
from gpupipe.errors import device_failure, first_line

if TYPE_CHECKING:
    from gpupipe.codecs.base import EncoderSettings, Keep, Packet
    from gpupipe.device.base import Lane
    from gpupipe.frame import FrameBatch


class ProresEncoder(DescribedEncoder):
    """Encodes every picture by itself, batch by batch; meets `base.Encoder`.

    A fourth plane, (N, H, W) of `input_format.alpha` bits, or of the picture's, is alpha (opaque at its top code): the
    4444 profiles keep it exactly.

    Args:
        settings: what the plan asks; see `profile.check`.
        lane: where the pictures are made.
        graphed: pictures that come at once, at most, to code them by CUDA Graphs where that can be; 0 not to. No
            decoder session may be at work while they are captured.
    """

    def __init__(self, settings: EncoderSettings, lane: Lane, graphed: int = 0) -> None:
        self.settings, self._lane = settings, lane
        self._profile = profile_of(settings)
        quantiser = None if settings.quality is None else int(settings.quality)
        source = settings.input_format.with_(device=lane.device)
        with lane.active():
            self._coder = Coder(source, self._profile, quantiser, rate=settings.rate)
        self._staging = PinnedBytes(lane)
        self._repeated: Repeated | None = None
        if graphed and self._coder.graphable and not source.alpha:
            self._repeated = Repeated(self._coder, source, graphed, lane)
            self._staging.room(graphed * self._coder.frame_bytes)  # pinned now: that would hold up decoders later

    def encode_into(self, batch: FrameBatch, keep: Keep) -> list[Packet]:
        """See `base.AloneEncoder`; `batch.planes` are Y, Cb, Cr and perhaps alpha."""
        planes = tuple(plane[: batch.valid] for plane in planes_of(batch))
        self._lane.wait(batch.ready)
        try:
            with torch.inference_mode(), self._lane.active():
                coded = self._coded(planes)
                here = self._staging.fetch(coded.data).numpy()
        except RuntimeError as error:
            raise device_failure(
                f"ProRes failed: {first_line(error)}", where=f"{self._lane.device}, pts {batch.pts[0]}"
            ) from None
        spans = [(at, at + size) for at, size in zip(coded.frames, coded.sizes, strict=True)]
        return intra_packets(batch, keep(here, spans), self.settings.time_base)

    def _coded(self, planes: tuple[torch.Tensor, ...]) -> Coded:
        if self._repeated is not None and self._repeated.takes(planes):
            return self._repeated.code(planes)
        return self._coder.write(self._coder.choose(planes))
