"""The `output` section of the config."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from gpupipe.config.values import Bitrate, Strict


class VideoOutput(Strict):
    """How the pictures are encoded."""

    codec: str = "h264"
    encoder: str = "auto"
    """auto, nvenc, nvjpeg, prores_torch, or a libav encoder by name (libx264, prores_ks, ...)."""
    quality: float | None = Field(default=None, ge=0)
    """Constant quality on the encoder's own scale (CRF, CQ, JPEG's 1 to 100); by default its usual value."""
    bitrate: Bitrate | None = None
    preset: str | None = Field(default=None, min_length=1)
    pixel_format: str = "auto"
    """auto keeps depth and chroma as far as the encoder can."""
    alpha: Literal["auto", "keep", "drop"] = "auto"
    """Of the source, where it has any: auto carries it if the encoder can and else warns; keep is then an error."""
    options: dict[str, str | int | float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_rate_control(self) -> VideoOutput:
        if self.quality is not None and self.bitrate is not None:
            raise ValueError("quality and bitrate exclude each other; give one")
        return self


def _audio(value: object) -> object:
    if isinstance(value, str) and value not in ("copy", "none"):
        raise ValueError(f"audio is copy, none, or {{codec: aac, bitrate: 192k}}, not {value!r}")
    return value


class AudioEncode(Strict):
    """Re-encoded audio."""

    codec: str
    bitrate: Bitrate | None = None


class Signature(Strict):
    """Who signs a C2PA manifest."""

    certificate: str
    """A PEM file, the signer's certificate first."""
    key: str
    """A PEM file."""
    algorithm: Literal["es256", "es384", "es512", "ps256", "ps384", "ps512", "ed25519"] = "es256"
    timestamps: str | None = None
    """URL of a time stamp authority."""


class Output(Strict):
    """Where the result goes and what it holds."""

    path: str | None = None
    video: VideoOutput = VideoOutput()
    audio: Annotated[Literal["copy", "none"] | AudioEncode, BeforeValidator(_audio)] = "copy"
    subtitles: Literal["copy", "none"] = "copy"
    metadata: Literal["copy", "none"] = "copy"
    """Chapters, tags, timecode, attachments, data streams, cover art."""
    provenance: Literal["auto", "none"] | Signature = "auto"
    """Whether the file says that pictures were generated or enhanced, where they were; signed with a certificate."""
