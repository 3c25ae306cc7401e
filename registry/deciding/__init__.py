"""Which candidate runs, and why.

`selection` asks the backends, `decide` chooses by `conditions`, a `decision` says why, and `nearest` what is
missing where nothing accepts. `tuned` keeps the choices that were measured.
"""
