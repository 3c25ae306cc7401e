"""Comparing backends: every candidate on the same inputs, judged, shown, kept and run again elsewhere.

`running` makes a `report` of `records`; `text` and `html` show it; `bundle` keeps a case of it in one file,
which `reading` reads with suspicion and `replaying` runs again, with what is `replayed` as the outcome.
"""
