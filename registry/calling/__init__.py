"""A call: `call` takes it apart, `request` binds it to its op.

`arrays` knows the kinds of values, `symbols` names in place of sizes, `scope` and `passes` evaluate what the
manifest says of a request, `parts` cuts one.
"""
