"""The warp's sampling by one kernel beside grid_sample on the same pictures.

    python bench/warp.py [--device cuda] [--size 1920x1080] [--batch 16] [--json FILE]

Microseconds a frame of each, medians of CUDA graph replays on a GPU; and what memory's bandwidth alone would need.
"""
