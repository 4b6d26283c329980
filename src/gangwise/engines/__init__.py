"""Real clusters behind one small boundary: local processes, Slurm, Kubernetes."""
