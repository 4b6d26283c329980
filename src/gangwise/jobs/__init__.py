"""Jobs as a cluster's operators know them: submitted, waiting, placed whole, run, ended."""
