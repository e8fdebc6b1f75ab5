"""Which engine runs a network: the one that is named, or the fastest of those that are there and right."""

from __future__ import annotations

import json
import threading
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpupipe.device.host import short_of_memory
from gpupipe.engines.eager import Eager
from gpupipe.engines.inductor import Inductor
from gpupipe.engines.tensorrt import TensorRT
from gpupipe.engines.triton import Triton
from gpupipe.errors import EngineError, first_line
from gpupipe.events import happened
from gpupipe.plain import parsed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import nn

    from gpupipe.engines.base import Engine, Network, Profile
    from gpupipe.engines.cache import EngineCache, Key

ENGINES: tuple[Engine, ...] = (TensorRT(), Inductor(), Triton(), Eager())
_NEAR = 1.02
"""Times the fastest's that `auto` bears of an engine that starts sooner: it takes minutes to make up for seconds."""
_CHOICE, _TICK = "choice.json", 10.0


def named(name: str) -> Engine:
    """The engine of that name."""
    return next(engine for engine in ENGINES if engine.name == name)


def candidates(wanted: str, device: str) -> tuple[Engine, ...]:
    """What comes into question; on the CPU `auto` is eager, since nothing there is worth minutes of building.

    Raises EngineError where an engine is named that cannot be used here.
    """
    if wanted == "auto":
        return (named("eager"),) if device == "cpu" else tuple(e for e in ENGINES if e.absent(device) is None)
    if (why := named(wanted).absent(device)) is not None:
        raise EngineError(f"engine {wanted} cannot be used on {device}: {why}", hint="use `engine: auto`")
    return (named(wanted),)


@dataclass(frozen=True, slots=True)
class Built:
    """A network that is ready to run."""

    run: Network
    engine: str
    flexible: bool
    """Whether it takes smaller batches, too."""


class Selector:
    """Gives a network in the form in which an engine runs it; called with a profile.

    Args:
        network: on the profile's device and in its dtype.
        digest: its identity.
        wanted: an engine's name, or `auto`.
        cache: keeps what is built, and what `auto` chose.
        say: told in words what is built and how long it takes.
        warn: told in words, a line each, of engines that `auto` leaves out and why.
    """

    def __init__(
        self, network: nn.Module, digest: str, wanted: str, cache: EngineCache, *,
        say: Callable[[str], None], warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._network, self._digest, self._wanted = network, digest, wanted
        self._cache, self._say, self._warn = cache, say, warn
        self._short = False
        """Whether an engine was left out because memory was short."""

    def __call__(self, profile: Profile) -> Built:
        """Builds, or loads, whatever it takes.

        Raises:
            EngineError: the engine that was named cannot be used, fails, or gives something else than eager.
            torch.OutOfMemoryError: memory is short for the profile.
        """
        there = candidates(self._wanted, profile.device)
        if len(there) == 1:
            return self._one(there[0], profile)
        return self._fastest(there, profile)

    def foreseen(self, profile: Profile) -> str | None:
        """The engine that a call would load, by what the cache has; None where it would build or measure one."""
        there = candidates(self._wanted, profile.device)
        engine = there[0]
        if len(there) > 1:
            if (folder := self._cache.known(self._choice_key(there, profile))) is None:
                return None
            try:
                engine = named(_chosen(folder))
            except (EngineError, StopIteration):
                return None
        kept = not engine.builds or self._cache.known(self._key(engine, profile)) is not None
        return engine.name if kept else None

    def _one(self, engine: Engine, profile: Profile) -> Built:
        built, fresh = self._made(engine, profile)
        if fresh and engine.name != "eager":
            from gpupipe.engines.check import compare  # noqa: PLC0415  imports torch

            try:
                compare(built.run, self._eager(profile), profile)
            except EngineError as error:
                self._cache.discard(self._key(engine, profile))
                raise EngineError(f"engine {engine.name}: {error.message}") from error
        return built

    def _fastest(self, engines: Sequence[Engine], profile: Profile) -> Built:
        key = self._choice_key(engines, profile)
        made: list[Built] = []
        for _ in range(2):  # a second time where what was chosen cannot be loaded any more
            folder, _ = self._cache.entry(key, lambda place: made.append(self._measured(engines, profile, place)))
            if made:
                if self._short:  # another day may have more memory
                    self._cache.discard(key)
                return made[0]
            try:
                return self._made(named(_chosen(folder)), profile)[0]
            except (EngineError, StopIteration) as error:
                self._say(f"what was chosen before cannot be used any more: {first_line(error)}")
                self._cache.discard(key)
        return self._one(named("eager"), profile)

    def _measured(self, engines: Sequence[Engine], profile: Profile, place: Path) -> Built:
        """Builds, checks and times every engine; writes down the fastest, or what starts sooner and is nearly that."""
        eager, found, why = self._eager(profile), {}, {}
        for engine in (one for one in engines if one.suits(self._network, profile)):
            try:
                found[engine.name] = self._timed(engine, eager, profile)
            except (EngineError, RuntimeError, MemoryError) as error:
                self._short |= (short := short_of_memory(error))
                if engine.name == "eager":
                    raise
                why[engine.name] = "out of memory" if short else first_line(error)
                self._warn(f"engine {engine.name} is left out: {why[engine.name]}")
        least = min(seconds for seconds, _ in found.values())
        near = {name: built for name, (seconds, built) in found.items() if seconds <= _NEAR * least}
        best = min(near, key=lambda name: (named(name).delay, found[name][0]))
        figures = ", ".join(f"{name} {seconds * 1000:.2f} ms" for name, (seconds, _) in found.items())
        self._say(f"engine {best} is taken for {profile}: {figures}")
        seconds = {name: seconds for name, (seconds, _) in found.items()}
        text = json.dumps({"engine": best, "seconds": seconds, "left_out": why}, indent=1)
        (place / _CHOICE).write_text(text, encoding="utf-8")
        return found[best][1]

    def _timed(self, engine: Engine, eager: Network, profile: Profile) -> tuple[float, Built]:
        from gpupipe.device.timing import seconds_of  # noqa: PLC0415  imports torch
        from gpupipe.engines.check import compare, test_pictures  # noqa: PLC0415  imports torch

        built, _ = self._made(engine, profile)
        if engine.name != "eager":
            compare(built.run, eager, profile)
        pictures = test_pictures(profile)
        return seconds_of(lambda: built.run(pictures), profile.device), built

    def _eager(self, profile: Profile) -> Network:
        return named("eager").load(self._network, profile, Path())

    def _made(self, engine: Engine, profile: Profile) -> tuple[Built, bool]:
        """From the cache, and built first where it is not there or is no good; and whether it was built now."""
        if not engine.builds:
            return Built(engine.load(self._network, profile, Path()), engine.name, engine.flexible), False
        key, fresh = self._key(engine, profile), False
        for last in (False, True):
            folder, new = self._cache.entry(key, lambda place: self._build(engine, profile, place))
            fresh |= new
            try:
                with _unadvised():
                    run = engine.load(self._network, profile, folder)
            except EngineError:
                if last or new:
                    raise
                self._cache.discard(key)  # whole, and yet it does not load
                continue
            if not new:
                happened("engine-load", f"{engine.name} for {profile}")
            return Built(run, engine.name, engine.flexible), fresh
        raise AssertionError

    def _build(self, engine: Engine, profile: Profile, place: Path) -> None:
        begun = time.monotonic()
        with _ticking(self._say, f"building {engine.name} for {profile}"), _unadvised():
            engine.build(self._network, profile, place)
        done = f"{engine.name} for {profile} built in {time.monotonic() - begun:.1f} s"
        happened("engine-build", done)
        self._say(done)

    def _key(self, engine: Engine, profile: Profile) -> Key:
        from gpupipe.engines.identity import key_of  # noqa: PLC0415  imports torch

        return key_of(self._digest, profile, engine.name, engine.recipe, engine.versions())

    def _choice_key(self, engines: Sequence[Engine], profile: Profile) -> Key:
        """Of the choice: another engine, or another version of one, is another choice."""
        from gpupipe.engines.identity import key_of  # noqa: PLC0415  imports torch

        versions = {f"{e.name} {lib}": v for e in engines for lib, v in e.versions().items()}
        return key_of(self._digest, profile, "auto", max(e.recipe for e in engines), versions)


def _chosen(folder: Path) -> str:
    choice: str = parsed((folder / _CHOICE).read_text(encoding="utf-8"))["engine"]
    return choice


@contextmanager
def _unadvised() -> Iterator[None]:
    """Compilers give advice as Python warnings, such as to compute in TF32, and tell of what will change in them.

    Nobody who renders can do anything about either.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _ticking(say: Callable[[str], None], what: str) -> Iterator[None]:
    """Says it at once, and again with the seconds for as long as it takes."""
    over, begun = threading.Event(), time.monotonic()

    def tick() -> None:
        while not over.wait(_TICK):
            say(f"{what}: {time.monotonic() - begun:.0f} s")

    say(what)
    clock = threading.Thread(target=tick, name="engine-build", daemon=True)
    clock.start()
    try:
        yield
    finally:
        over.set()
        clock.join()
