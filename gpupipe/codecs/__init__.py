"""Codec libraries behind two Protocols (`base`): one module a library."""
