"""Times on this machine: benchmarks, and choices by measurement."""
