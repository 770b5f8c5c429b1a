import sys

from neuroshard.report import main

sys.exit(main())
