"""Faces as tensors: found, followed, aligned, changed and blended back. All is pure, on any device."""
