"""Tasks from files and from the hub."""
