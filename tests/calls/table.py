#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints rows of tests/calls with verdicts: table.py FILE. Exit status 1 where a row is above its floor, 2 without rows.

A row is a JSON object on a line of its own, whatever the language that measured it:

    language, case          texts
    us, median_us           the least and the median time of a call, in microseconds
    floor_us, goal_us       what it may cost at most, and what it should
    peer, peer_us           what another library does in the same run, and its least time; may be missing
"""

import json
import sys


def verdict(row):
    if row["us"] <= row["goal_us"]:
        return "goal"
    return "floor" if row["us"] <= row["floor_us"] else "ABOVE THE FLOOR"


def main(path):
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file if line.startswith("{")]
    table = [("language", "case", "us", "median", "peer", "us", "floor", "goal", "verdict")]
    for row in rows:
        numbers = [f"{row[key]:.2f}" for key in ("us", "median_us", "floor_us", "goal_us")]
        peer = (row["peer"], f"{row['peer_us']:.2f}") if "peer" in row else ("-", "-")
        table.append((row["language"], row["case"], *numbers[:2], *peer, *numbers[2:], verdict(row)))
    widths = [max(map(len, column)) for column in zip(*table)]
    for line in table:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths)).rstrip())
    return 2 if not rows else int(any(row["us"] > row["floor_us"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
