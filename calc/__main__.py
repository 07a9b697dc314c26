"""python -m calc MODEL: the command line, which stands above calc and presets."""

import sys

from cli import main

if __name__ == "__main__":
    sys.exit(main())
