"""Whether the alpha of a source reaches the output, and if not, why."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpupipe.codecs.encoders import encoder_facts
from gpupipe.codecs.matte import beside
from gpupipe.codecs.prores import profile
from gpupipe.errors import PlanError
from gpupipe.format import without_alpha
from gpupipe.plan.encoder import options_of
from gpupipe.plan.model import Notice

if TYPE_CHECKING:
    from gpupipe.config import VideoOutput
    from gpupipe.media.source import SourceInfo
    from gpupipe.plan.encoder import Choice

_WHERE = "output.video.alpha"


@dataclass(frozen=True, slots=True)
class Alpha:
    """What was decided."""

    bits: int = 0
    """Of the alpha that the decoder is to give; 0 for none."""
    warnings: tuple[Notice, ...] = ()
    """Why it is dropped, though nobody said so."""
    notes: tuple[str, ...] = ()
    """For the plan, where the source has alpha."""


def choose_alpha(video: VideoOutput, info: SourceInfo, choice: Choice) -> Alpha:
    """Decides by the config, the source and the encoder.

    Raises PlanError where the config wants it and the encoder or the source's decoder cannot have it.
    """
    bits, named = info.video.alpha, without_alpha(video.pixel_format) is not None
    if video.alpha == "drop":
        if named:
            raise PlanError(f"{video.pixel_format} has alpha", where=_WHERE, hint="leave one of the two keys out")
        return Alpha(notes=("alpha is dropped, as the config says",) if bits else ())
    hidden = beside(info.streams[info.video.index].tags)
    why = "it is a second bitstream, which cannot be decoded here" if hidden and not bits else _refusal(video, choice)
    if named and not bits:
        raise PlanError(f"the source has no alpha for {video.pixel_format}", where="output.video.pixel_format",
                        hint=f"use {without_alpha(video.pixel_format)}")  # fmt: skip
    if not bits and not hidden:
        return Alpha()
    if why is None:
        notes = [f"alpha: {bits} bit, straight, is carried to {choice.encoder}"]
        if info.video.codec == "exr":
            notes.append("EXR is usually premultiplied; its alpha is taken as straight all the same")
        return Alpha(bits, notes=tuple(notes))
    if video.alpha == "keep" or named:
        raise PlanError(f"the source's alpha cannot be kept: {why}", where=_WHERE, hint="see `alpha: drop`")
    return Alpha(warnings=(Notice("source-reduced", f"alpha dropped: {why}"),))


def carrying(info: SourceInfo, alpha: Alpha) -> SourceInfo:
    """The source as it is to be decoded."""
    return replace(info, video=replace(info.video, format=info.video.format.with_(alpha=alpha.bits)))


def _refusal(video: VideoOutput, choice: Choice) -> str | None:
    if not encoder_facts(choice.encoder).alpha:
        return f"{choice.encoder} does not carry it (prores 4444 and ffv1 do)"
    if video.pixel_format != "auto" and without_alpha(video.pixel_format) is None:
        return f"{video.pixel_format} has none"
    if choice.codec == "prores" and "profile" in video.options:
        named = profile.profile_named({"profile": options_of(video)["profile"]})
        if named is not None and not named.chroma_444:
            return f"ProRes {named.name} has none, only 4444 and 4444xq do"
    if options_of(video).get("alpha_bits") == "0":
        return "alpha_bits is 0"
    return None
