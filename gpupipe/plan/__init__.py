"""Negotiation: from a config and the facts of a source to a Plan, before any frame is touched."""

from gpupipe.plan.make import make_plan, refuse_warnings
from gpupipe.plan.model import Notice, Plan, Step

__all__ = ["Notice", "Plan", "Step", "make_plan", "refuse_warnings"]
