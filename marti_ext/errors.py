"""Errors that end a run in one line."""


class UserError(Exception):
    """Bad input: one line that names the thing and the fix. The command line prints it and exits with code 2."""


class LostProcessError(Exception):
    """A process of a policy has died or failed: one line that names both. The last checkpoint is intact."""
