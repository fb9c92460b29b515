"""The one error a user of the command line can cause and mend."""


class UserError(Exception):
    """Bad input: one line that names the thing and the fix. The command line prints it and exits with code 2."""
