"""Workloads of the three families of slots, made of the tables of a trace."""
