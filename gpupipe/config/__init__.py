"""The config: YAML to frozen models. Every error names the file, the key path and the nearest key."""

from gpupipe.config.model import Config, MemoryLimits, Quality, SegmentLength, StageEntry, TimeRange
from gpupipe.config.output import AudioEncode, Output, Signature, VideoOutput
from gpupipe.config.read import load_config, parse_config
from gpupipe.config.values import MOST_SESSIONS

__all__ = [
    "MOST_SESSIONS",
    "AudioEncode",
    "Config",
    "MemoryLimits",
    "Output",
    "Quality",
    "SegmentLength",
    "Signature",
    "StageEntry",
    "TimeRange",
    "VideoOutput",
    "load_config",
    "parse_config",
]
