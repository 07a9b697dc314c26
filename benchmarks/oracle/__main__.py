import sys

from benchmarks.oracle.oracle import main

sys.exit(main())
