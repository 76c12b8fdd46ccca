# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the tool, and writes JUnit XML to $TARTAN_TEST_RESULTS/cli.xml where that is set.

Arguments go to pytest. Exit status 77: numpy, scipy or pytest is missing.
"""

import os
import sys

try:
    import numpy  # noqa: F401
    import pytest
    import scipy  # noqa: F401
except ImportError as error:
    print("skipped:", error)
    sys.exit(77)

results = os.environ.get("TARTAN_TEST_RESULTS")
report = ["--junitxml=" + os.path.join(results, "cli.xml")] if results else []
folder = os.path.dirname(os.path.abspath(__file__))
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "--rootdir", folder, folder, *report, *sys.argv[1:]]))
