"""Is a result right: `accuracy` holds it against the right answer, `judge` has it so of every candidate's."""
