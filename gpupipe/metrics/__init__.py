"""What Prometheus scrapes: runs, lanes, memory and the GPU of this process."""

from gpupipe.metrics.exporter import Exporter

__all__ = ["Exporter"]
