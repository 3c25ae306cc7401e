"""``python -m registry``."""

from .cli import main

main(prog_name="registry")
