"""Published packages: read and verified, fetched from a hub, pinned, loaded, tested, and written."""
