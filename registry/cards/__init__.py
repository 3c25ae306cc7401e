"""Cards: what an operator is, who runs it and when, in words."""
