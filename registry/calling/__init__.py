"""From a call to a plan, and what a plan does.

`call` takes a call apart, `request` binds it, `planning` makes it a `plan`, and `memo` remembers the plan for
each kind of call. `arrays` and `readers` know the kinds of values, `scope` and `passes` evaluate what the
manifest says of a request, `parts` cuts one.
"""
