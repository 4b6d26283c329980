"""Solvers of P3: max v·x + √(s·x) subject to A x ≤ c, x binary."""

from gangwise.fluctuating_speeds.solvers.solver import P3Solver, Solution, Warm, solve

__all__ = ["P3Solver", "Solution", "Warm", "solve"]
