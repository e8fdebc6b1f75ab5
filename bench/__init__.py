"""Measurements; every figure in README comes from a JSON in bench/results/."""
