"""A small project that brings a backend, and what writes it."""
