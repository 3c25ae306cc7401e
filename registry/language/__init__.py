"""The manifest language: its expressions and templates, parsed, evaluated and explained."""
