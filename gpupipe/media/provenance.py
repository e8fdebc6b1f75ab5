"""Says in the file itself that a network made parts of its pictures: IPTC's source type, and a C2PA manifest."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from gpupipe import __version__
from gpupipe.errors import MediaError, first_line
from gpupipe.media.output import UNFINISHED

if TYPE_CHECKING:
    from gpupipe.journal import Journal
    from gpupipe.media.containers import Container
    from gpupipe.stages.base import SourceType

_TERMS = "http://cv.iptc.org/newscodes/digitalsourcetype/"
TAG = "DIGITAL_SOURCE_TYPE"
"""Of Matroska."""
_XMP = UUID("be7acfcb-97a9-42e8-9c71-999491e3afac").bytes
"""Type of the box that holds XMP in the MP4 family: XMP Specification part 3, 2.1.2.3."""
_PACKET = """<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>
<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="{tool}">
 <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">
  <rdf:Description rdf:about="" xmlns:Iptc4xmpExt="http://iptc.org/std/Iptc4xmpExt/2008-02-29/">
   <Iptc4xmpExt:DigitalSourceType>{uri}</Iptc4xmpExt:DigitalSourceType>
  </rdf:Description>
 </rdf:RDF>
</x:xmpmeta>
<?xpacket end="w"?>"""
_MIME = {"mp4": "video/mp4", "mov": "video/quicktime", "avi": "video/avi"}
Algorithm = Literal["es256", "es384", "es512", "ps256", "ps384", "ps512", "ed25519"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What an output says of how its pictures came to be."""

    source_type: SourceType
    """Of the IPTC NewsCodes."""
    certificate: str | None = None
    """A PEM file, the signer's certificate first; None signs nothing."""
    key: str | None = None
    algorithm: Algorithm = "es256"
    timestamps: str | None = None
    """URL of a time stamp authority (RFC 3161)."""

    @property
    def uri(self) -> str:
        """The term of IPTC's vocabulary."""
        return _TERMS + self.source_type


def carries(container: Container) -> bool:
    """Whether a container has a place for it."""
    return container.mov or container.matroska


def signs(container: Container) -> bool:
    """Whether C2PA knows the container."""
    return container.name in _MIME


def finish(path: Path, container: Container, provenance: Provenance, journal: Journal) -> None:
    """Marks and signs a file that is complete but for this.

    Raises MediaError where it cannot be written or signed; a container that has no place for it is a warning.
    """
    if container.mov:
        _append(path, _PACKET.format(tool=f"gpupipe {__version__}", uri=provenance.uri))
    elif not carries(container):
        journal.warn("provenance-not-carried", f"{container.name} has no place for the digital source type")
    if provenance.certificate is not None and provenance.key is not None:
        _sign(path, container, provenance)


def _append(path: Path, packet: str) -> None:
    """A box at the end of the file, where it moves nothing."""
    data = _XMP + packet.encode()
    try:
        with path.open("ab") as file:
            file.write((len(data) + 8).to_bytes(4, "big") + b"uuid" + data)
    except OSError as error:
        raise MediaError(f"the digital source type cannot be written: {error.strerror}", where=str(path)) from None


def manifest(provenance: Provenance, mime: str) -> dict[str, object]:
    """What is signed: made by gpupipe, of which source type. C2PA Technical Specification 2, actions assertion."""
    agent = {"name": "gpupipe", "version": __version__}
    action = {"action": "c2pa.created", "softwareAgent": agent, "digitalSourceType": provenance.uri}
    return {
        "claim_generator_info": [agent],
        "format": mime,
        "assertions": [{"label": "c2pa.actions.v2", "data": {"actions": [action]}}],
    }


def beside(path: Path) -> Path:
    """Where a file is signed; swept away like all that ends so, where a run is killed."""
    return path.with_name(f"{path.stem}.signed.part")


def _sign(path: Path, container: Container, provenance: Provenance) -> None:
    try:
        import c2pa  # noqa: PLC0415  an extra
    except ModuleNotFoundError:
        raise MediaError("signing needs c2pa-python", hint="pip install 'gpupipe[provenance]'") from None
    signed = beside(path)
    UNFINISHED.add(signed)
    mime = _MIME[container.name]
    try:
        info = c2pa.C2paSignerInfo(
            provenance.algorithm.encode(),
            Path(provenance.certificate or "").read_bytes(),
            Path(provenance.key or "").read_bytes(),
            provenance.timestamps.encode() if provenance.timestamps else None,
        )
        with (
            c2pa.Signer.from_info(info) as signer,
            c2pa.Builder(json.dumps(manifest(provenance, mime))) as builder,
            path.open("rb") as source,
            signed.open("w+b") as target,
        ):
            builder.sign(signer, mime, source, target)
        os.replace(signed, path)  # noqa: PTH105  (Path.replace says the same)
    except (OSError, c2pa.C2paError) as error:
        why = getattr(error, "strerror", None) or first_line(error)
        raise MediaError(f"cannot be signed: {why}", where=str(provenance.certificate)) from None
    finally:
        with suppress(OSError):
            signed.unlink()
        UNFINISHED.discard(signed)
