"""Approximation jobs: partial work is worth something, machines are unreliable, budgets bind.

"Machine" is the word that the paper of OPS and OPM uses for a server, and this family keeps it.
"""

from gangwise.moved import former_face

__getattr__ = former_face(__name__, "environment", "offline", "policies", "problem")
