# SPDX-License-Identifier: Apache-2.0
"""Parts of bench.py: library (libtartan by ctypes), cases (the rows), operands, peers, timing, table."""
