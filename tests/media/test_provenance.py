"""The source type as ffprobe reads it, the manifest as c2pa's own reader judges it."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import c2pa
import pytest

from gpupipe.config import parse_config
from gpupipe.errors import ConfigError, MediaError, PlanError
from gpupipe.journal import Journal
from gpupipe.media.containers import container
from gpupipe.media.output import UNFINISHED
from gpupipe.media.probe import probe
from gpupipe.media.provenance import Provenance, finish
from gpupipe.plan import make_plan
from gpupipe.render import render

URI = "http://cv.iptc.org/newscodes/digitalsourcetype/compositeWithTrainedAlgorithmicMedia"
COMPOSITE = Provenance("compositeWithTrainedAlgorithmicMedia")


@pytest.fixture
def clip(tmp_path, ffmpeg):
    def make(name: str) -> Path:
        path = tmp_path / name
        ffmpeg("-f", "lavfi", "-i", "testsrc2=s=160x120:r=5:d=0.6", "-pix_fmt", "yuv420p", path)
        return path

    return make


@pytest.fixture(scope="module")
def signer(tmp_path_factory) -> tuple[Path, Path]:
    """A certificate for signing documents, of an authority made on the spot, and its key."""
    folder = tmp_path_factory.mktemp("signer")

    def openssl(*args: str) -> None:
        done = subprocess.run(["openssl", *args], cwd=folder, capture_output=True, text=True, check=False, timeout=240)
        assert done.returncode == 0, done.stderr

    for who in ("root", "leaf"):
        openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", f"{who}.sec1")
        openssl("pkcs8", "-topk8", "-nocrypt", "-in", f"{who}.sec1", "-out", f"{who}.key")
    openssl("req", "-x509", "-new", "-key", "root.key", "-subj", "/O=Test/CN=Root", "-days", "30", "-out", "root.pem",
            "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    openssl("req", "-new", "-key", "leaf.key", "-subj", "/O=Test/CN=Signer", "-out", "leaf.csr")
    (folder / "leaf.ext").write_text(
        "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
        "extendedKeyUsage=critical,emailProtection\nsubjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid\n"
    )
    openssl("x509", "-req", "-in", "leaf.csr", "-CA", "root.pem", "-CAkey", "root.key", "-CAcreateserial", "-days", "20",
            "-extfile", "leaf.ext", "-out", "leaf.pem")  # fmt: skip
    chain = folder / "chain.pem"
    chain.write_text((folder / "leaf.pem").read_text() + (folder / "root.pem").read_text())
    return chain, folder / "leaf.key"


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mov"])
def test_ffprobe_reads_the_source_type(name, clip, ffprobe):
    path = clip(name)
    before = ffprobe(path, "-show_packets", "-show_streams")
    finish(path, container(path.suffix[1:]), COMPOSITE, Journal())
    tags = ffprobe(path, "-export_xmp", "1", "-show_format")["format"]["tags"]
    assert f"<Iptc4xmpExt:DigitalSourceType>{URI}</Iptc4xmpExt:DigitalSourceType>" in tags["xmp"]
    assert ffprobe(path, "-show_packets", "-show_streams") == before


def test_a_container_without_a_place_is_a_warning(clip):
    path, journal = clip("clip.avi"), Journal()
    before = path.read_bytes()
    finish(path, container("avi"), COMPOSITE, journal)
    assert list(journal.entries) == ["provenance-not-carried"]
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["clip.mp4", "clip.mov"])
def test_c2pa_finds_the_manifest_whole(name, clip, signer, ffprobe):
    path = clip(name)
    before = ffprobe(path, "-show_entries", "packet=pts,dts,size,flags")
    chain, key = signer
    finish(path, container(path.suffix[1:]), Provenance(COMPOSITE.source_type, str(chain), str(key)), Journal())
    with c2pa.Reader(str(path)) as reader:
        said = json.loads(reader.json())
    manifest = said["manifests"][said["active_manifest"]]
    (action,) = next(a for a in manifest["assertions"] if a["label"].startswith("c2pa.actions"))["data"]["actions"]
    assert action["digitalSourceType"] == URI
    assert manifest["claim_generator_info"][0]["name"] == "gpupipe"
    assert manifest["signature_info"]["issuer"] == "Test"
    bad = [s["code"] for s in said.get("validation_status", [])]
    assert bad in ([], ["signingCredential.untrusted"]), bad  # our authority is on nobody's list
    assert ffprobe(path, "-show_entries", "packet=pts,dts,size,flags") == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]
    data = bytearray(path.read_bytes())
    data[data.rindex(b"mdat") + 200] ^= 1
    path.write_bytes(data)
    with c2pa.Reader(str(path)) as reader:
        codes = [s["code"] for s in json.loads(reader.json())["validation_status"]]
    assert "assertion.bmffHash.mismatch" in codes, "a changed picture must show"


def test_a_wrong_key_is_one_line_and_leaves_nothing(clip, signer, tmp_path):
    path = clip("clip.mp4")
    wrong = tmp_path / "wrong.key"
    wrong.write_text("no key")
    with pytest.raises(MediaError, match="cannot be signed") as error:
        finish(path, container("mp4"), Provenance(COMPOSITE.source_type, str(signer[0]), str(wrong)), Journal())
    assert "\n" not in str(error.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["clip.mp4", "wrong.key"]


def test_what_is_half_signed_is_known_to_who_ends_it_at_once(clip, signer, monkeypatch):
    path, seen = clip("clip.mp4"), []

    def sign(builder, with_whom, mime, source, target):
        seen.append((Path(target.name), Path(target.name) in UNFINISHED))
        raise c2pa.C2paError("enough")

    monkeypatch.setattr(c2pa.Builder, "sign", sign)
    with pytest.raises(MediaError, match="enough"):
        finish(path, container("mp4"), Provenance(COMPOSITE.source_type, *map(str, signer)), Journal())
    assert seen == [(path.with_name("clip.signed.part"), True)]
    assert not UNFINISHED


RESTYLE = {"face": {"operate": [{"generate": {"card": "multistyle26"}}], "align": {"size": 64}}}


def planned(source: Path, output: Path, stage: dict, **more: object):
    return make_plan(parse_config({"stages": [stage], "output": more}), probe(source), output, device="cpu")


def test_the_plan_asks_for_it_only_where_something_is_made_up(clip, tmp_path, weights, signer):
    weights("centerface")
    weights("multistyle26")
    source, out = clip("clip.mp4"), tmp_path / "out.mp4"
    plan = planned(source, out, RESTYLE)
    assert plan.provenance == COMPOSITE
    assert any("compositeWithTrainedAlgorithmicMedia" in line for line in plan.lines())
    blurred = planned(source, out, {"face": {"operate": ["blur"]}})
    assert blurred.provenance is None
    off = planned(source, out, RESTYLE, provenance="none")
    assert off.provenance is None
    assert [n.code for n in off.warnings] == ["provenance-off"]
    lost = planned(source, tmp_path / "out.avi", RESTYLE)
    assert [n.code for n in lost.warnings] == ["provenance-not-carried"]
    keys = {"certificate": str(signer[0]), "key": str(signer[1])}
    assert planned(source, out, RESTYLE, provenance=keys).provenance.certificate == keys["certificate"]
    with pytest.raises(PlanError, match=r"C2PA does not know matroska"):
        planned(source, tmp_path / "out.mkv", RESTYLE, provenance=keys)
    with pytest.raises(PlanError, match=r"output\.provenance\.key: there is no file"):
        planned(source, out, RESTYLE, provenance={**keys, "key": "none.pem"})
    with pytest.raises(ConfigError, match="provenance"):
        planned(source, out, RESTYLE, provenance={"certificate": "a.pem"})


@pytest.mark.parametrize("suffix", ["mkv", "mp4"])
def test_a_run_says_it(suffix, clip, tmp_path, weights, ffprobe):
    weights("centerface")
    weights("multistyle26")
    out = tmp_path / f"out.{suffix}"
    render(planned(clip("clip.mp4"), out, RESTYLE), overwrite=False, journal=Journal(), stop=threading.Event())
    tags = (
        ffprobe(out, "-export_xmp", "1", "-show_format")["format"]["tags"]
        if suffix == "mp4"
        else ffprobe(out)["format"]["tags"]
    )
    assert any(URI in value for value in tags.values())
