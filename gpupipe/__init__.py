"""gpupipe decodes, transforms and re-encodes video without frames leaving the GPU.

Importing the package needs no GPU library and does not import torch: a plain transcode on the CPU never does.
"""

__version__ = "0.1.0"
