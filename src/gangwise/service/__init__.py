"""The live service: a scheduler beside a real cluster, watching or acting."""
