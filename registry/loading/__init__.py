"""From a manifest's text to its records, checked, with errors that name file and place."""
