"""Values of the config: strict types, and texts that stand for numbers."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict

from gpupipe.device import NAMES


class Strict(BaseModel):
    """Unknown keys and wrong types are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def _time_text(value: object) -> object:
    """Numbers are seconds; texts are read later, when the source's time base and rate are known."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError("a time is seconds (12.5), 'HH:MM:SS.fff', a timecode 'HH:MM:SS:FF' or 'pts:N'")  # noqa: TRY004  pydantic's
    return str(value)


TimeText = Annotated[str, BeforeValidator(_time_text)]


LEAST_BITRATE = 4000


def _bits_per_second(value: object) -> object:
    """`192k`, `8M` or a plain number."""
    text = str(value).strip() if isinstance(value, (str, int, float)) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{0,12})?)([kM]?)", text)
    rate = round(float(match[1]) * {"": 1, "k": 1_000, "M": 1_000_000}[match[2]]) if match else 0
    if not 0 < rate < 1 << 31:
        raise ValueError(f"a bitrate is a number with k or M, such as 192k or 8M, not {value!r}")
    if not match[2] and rate < LEAST_BITRATE:  # type: ignore[index]  # a rate above 0 comes from a match
        raise ValueError(f"{rate} bits a second is next to nothing; write {rate}k for kilobits")
    return rate


Bitrate = Annotated[int, BeforeValidator(_bits_per_second)]


def _device(value: str) -> str:
    if NAMES.fullmatch(value):
        return value
    raise ValueError(f"a device is auto, cpu, cuda or cuda:N, not {value!r}")


Device = Annotated[str, AfterValidator(_device)]


def _devices(value: object) -> object:
    if value == "all":
        return value
    if isinstance(value, list) and value and all(isinstance(one, str) and _GPU.fullmatch(one) for one in value):
        if len(set(value)) == len(value):
            return tuple(value)
        raise ValueError("a device is named twice")
    raise ValueError(f"devices is all, or a list such as [cuda:0, cuda:1], not {value!r}")


_GPU = re.compile(r"cuda:[0-9]{1,4}")
Devices = Annotated[Literal["all"] | tuple[str, ...], BeforeValidator(_devices)]


def _sessions(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MOST_SESSIONS):
        return value
    raise ValueError(f"sessions is auto or a number from 1 to {MOST_SESSIONS}, not {value!r}")


MOST_SESSIONS = 64
Sessions = Annotated[Literal["auto"] | int, BeforeValidator(_sessions)]


def _bytes(value: object) -> object:
    """`800M`, `12G` (of 1024) or a plain number."""
    text = str(value).strip() if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{0,6})?)([MG]?)", text)
    size = round(float(match[1]) * {"": 1, "M": 1 << 20, "G": 1 << 30}[match[2]]) if match else 0
    if not LEAST_MEMORY <= size < 1 << 50:
        raise ValueError(f"memory is a number with M or G, such as 800M or 12G, not {value!r}")
    return size


LEAST_MEMORY = 64 << 20
Bytes = Annotated[int, BeforeValidator(_bytes)]
