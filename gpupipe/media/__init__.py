"""Containers, always through PyAV: probing, demuxing, time, what is carried over, and muxing."""
