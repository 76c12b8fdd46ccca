# SPDX-License-Identifier: Apache-2.0
"""Counts test cases of the last `meson test` from its machine-readable results, and ends with one line:
`N passed, N failed, N skipped`.

meson-logs/testlog.json says which tests ran and how each ended; that is the authority. The cases inside a test come from, in
this order: JUnit files <test name>.xml or <test name>.*.xml in the results directory, written by the test itself; Meson's
testlog.junit.xml (GoogleTest and TAP). A test without cases counts as one. A test that ended badly although all of its cases
passed (a leak reported at exit, a crash in the middle, a time-out) adds one failure.
"""

import argparse
import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
GOOD = {"OK": PASSED, "EXPECTEDFAIL": PASSED, "SKIP": SKIPPED}  # every other end of a test is a failure


def state_of(case):
    if case.find("failure") is not None or case.find("error") is not None:
        return FAILED
    # GoogleTest marks disabled cases with status="notrun" alone.
    if case.find("skipped") is not None or case.get("status") == "notrun":
        return SKIPPED
    return PASSED


def states_of(suites):
    return [state_of(case) for suite in suites for case in suite.findall("testcase")]


def suites_in(path):
    """Without the control characters that the output of a test may have, which XML forbids."""
    text = re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b"", path.read_bytes())
    return list(ElementTree.fromstring(text).iter("testsuite"))


def split_name(full):
    """'project:suite+suite / name' or 'project / name' or 'name' -> (project, suites, name)"""
    head, separator, name = full.partition(" / ")
    if not separator:
        return "", [], full
    project, _, suites = head.partition(":")
    return project, suites.split("+") if suites else [], name


def read_log(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.strip()]


def meson_cases(path, tests):
    """{full test name: states} of the tests whose cases Meson listed one by one."""
    names = {}
    for test in tests:
        project, _, name = split_name(test["name"])
        # Which of the two Meson writes depends on its version.
        names[project + "." + name] = names[project + "." + test["name"]] = test["name"]
    cases = {}
    for suite in suites_in(path) if path.exists() else []:
        title = suite.get("name", "")
        # "project.test" for TAP, "project.test.suite" for GoogleTest; names may hold dots, so the longest match wins.
        # Single-result tests are in a suite called "project" and are judged by the log alone.
        fitting = [full for full in names if title == full or title.startswith(full + ".")]
        if fitting:
            cases.setdefault(names[max(fitting, key=len)], []).extend(states_of([suite]))
    return cases


def own_cases(directory, tests):
    """{test name: states} from the files that tests wrote themselves, and a list of problems."""
    names = [split_name(test["name"])[2] for test in tests]
    cases, problems = {}, []
    for path in sorted(directory.glob("*.xml")) if directory and directory.is_dir() else []:
        fitting = [name for name in names if path.name == name + ".xml" or path.name.startswith(name + ".")]
        if not fitting:
            problems.append("%s belongs to no test that ran (name it after the Meson test); not counted" % path.name)
            continue
        try:
            states = states_of(suites_in(path))
        except ElementTree.ParseError as error:
            problems.append("%s cannot be read: %s" % (path.name, error))
            continue
        cases.setdefault(max(fitting, key=len), []).extend(states)
    return cases, problems


def count(tests, listed, own):
    totals = {PASSED: 0, FAILED: 0, SKIPPED: 0}
    failed = []
    for test in tests:
        _, _, name = split_name(test["name"])
        end = GOOD.get(test["result"], FAILED)
        states = own.get(name) or listed.get(test["name"]) or []
        if not states:
            states = [end]
        elif end == FAILED and FAILED not in states:
            states = states + [FAILED]
        for state in states:
            totals[state] += 1
        if FAILED in states:
            failed.append("%s (%s, %d of %d)" % (test["name"], test["result"], states.count(FAILED), len(states)))
    return totals, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, help="Meson build directory")
    parser.add_argument("--results", type=pathlib.Path, help="directory of JUnit files written by tests")
    parser.add_argument("--status", type=int, default=0, help="exit status of `meson test`")
    parser.add_argument("--missing", action="append", default=[], metavar="SUITE=REASON",
                        help="a suite this machine cannot run: one skipped, unless some test of it did run")
    arguments = parser.parse_args()

    logs = arguments.build / "meson-logs"
    tests = read_log(logs / "testlog.json") if (logs / "testlog.json").exists() else []
    own, problems = own_cases(arguments.results, tests)
    totals, failed = count(tests, meson_cases(logs / "testlog.junit.xml", tests), own)
    ran = {suite for test in tests for suite in split_name(test["name"])[1]}
    for item in arguments.missing:
        suite, _, reason = item.partition("=")
        if suite not in ran:
            totals[SKIPPED] += 1
            print("skipped: %s (%s)" % (suite, reason))
    for problem in problems:
        print("note: " + problem, file=sys.stderr)
    for line in failed:
        print("failed: " + line)
    if arguments.status and not totals[FAILED]:
        print("failed: meson test ended with status %d" % arguments.status)
        totals[FAILED] += 1
    if not totals[PASSED] and not totals[FAILED]:
        print("failed: no test passed")
        totals[FAILED] += 1
    sys.stdout.flush()
    print("%d passed, %d failed, %d skipped" % (totals[PASSED], totals[FAILED], totals[SKIPPED]))
    return 1 if totals[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main())
