"""A plug-in file that cannot be loaded."""

raise RuntimeError("broken on purpose")
