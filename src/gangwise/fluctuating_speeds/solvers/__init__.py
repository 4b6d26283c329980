"""Solvers of P3, ESDP (12): max v·x + √(s·x) subject to A x ≤ c, x binary."""

from gangwise.fluctuating_speeds.solvers.solver import P3Solver, Solution, WarmStart

__all__ = ["P3Solver", "Solution", "WarmStart"]
