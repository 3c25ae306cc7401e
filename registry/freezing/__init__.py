"""The lock of decisions: what a program's requests were decided to, written down and decided anew."""
