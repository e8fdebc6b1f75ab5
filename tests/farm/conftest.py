"""The command line in this process."""

from command_line import cli, job

__all__ = ["cli", "job"]
