"""Speed and memory, as ratios within one run. Nothing here is asserted by a test."""
