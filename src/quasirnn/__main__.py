"""`python -m quasirnn`: the command, for `torchrun -m quasirnn` and where the script is not on the path."""

from quasirnn.cli.main import main

if __name__ == "__main__":
    main()
