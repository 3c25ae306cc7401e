"""Which candidate runs, and why: `selection` asks the backends, `decide` chooses, a `decision` says why."""
