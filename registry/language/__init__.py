"""The manifest language: parsing, evaluating and explaining its expressions."""
