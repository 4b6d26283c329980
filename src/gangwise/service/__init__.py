"""The live service: a scheduler of a real cluster, watching or acting."""
