"""From a call to a plan: `making` binds, decides and prepares, a `plan` runs, and `memo` finds it again.

`readers` tell the kinds of a call's arguments apart, which is what a plan is found by.
"""
