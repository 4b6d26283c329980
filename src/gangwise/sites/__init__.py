"""A site's own rules (Slurm, Kueue, caps, hours), what explains its log, and forecasts from it."""
