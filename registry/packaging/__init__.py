"""Published packages: read and verified, fetched from a hub, pinned, tested, and written."""
