"""What to tell the user to type next."""

import shutil
import sys
from pathlib import Path


def typed_command() -> str:
    """How to call this program again from where the user is, whether or not the environment is active."""
    program = Path(sys.argv[0])
    if program.name != "quasirnn":
        return f"{sys.executable} -m quasirnn"
    if shutil.which("quasirnn") == str(program):
        return "quasirnn"
    try:
        return str(program.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(program)
