"""Start the command line from a checkout; an installation has the command `warpgrade`."""

from evaluator.commands.main import main

if __name__ == "__main__":
    main()
