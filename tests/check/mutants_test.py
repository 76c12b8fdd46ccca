#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What mutants.py chooses."""
import pathlib
import unittest

import mutants

ROOT = pathlib.Path(__file__).resolve().parents[2]

TEXT = '''/* a < b */
enum { N = 3 };
static int f(int a, int b) {
    assert(a < 9);
    const int most = a > b ? a : b;
    CHECK(a < b, SHAPE, "a is %d, expected more than %d", a, b + 1);
    for (int i = 0; i < b; i++) put(a);
    if (a == b && most > 0) return 1; /* a != b */
    tartan_i_parallel(context, 4, 16 * (double)a, task, &a);
    return 0;
}
'''


class Mutants(unittest.TestCase):
    def of_text(self):
        return list(mutants.of_file("lib/core/x.c", TEXT))

    def test_each_change_is_one_of_the_code(self):
        found = {(m.line, m.kind, m.before.strip(), m.after.strip()) for m in self.of_text()}
        self.assertIn((7, "bound", "<", "+ 1 <"), found)
        self.assertIn((8, "comparison", "==", "!="), found)
        self.assertIn((8, "logic", "&&", "||"), found)
        self.assertIn((8, "condition", "(a == b && most > 0)", "(!(a == b && most > 0))"), found)
        self.assertIn((8, "constant", "1", "2"), found)
        self.assertIn((6, "comparison", "<", "<="), found)
        self.assertTrue(any(line == 6 and kind == "statement" for line, kind, *_ in found))

    def test_what_changes_no_result_stays(self):
        for m in self.of_text():
            self.assertNotIn(m.line, (1, 2, 4, 5), str(m))
            self.assertFalse(m.line == 6 and m.before == "1", str(m))  # of a message
            self.assertFalse(m.line == 9 and m.kind != "statement", str(m))  # of what a loop costs

    def test_a_change_changes_its_place_alone(self):
        for m in self.of_text():
            changed = m.apply(TEXT)
            self.assertNotEqual(changed, TEXT)
            self.assertEqual(changed[: m.at], TEXT[: m.at])
            self.assertTrue(changed.endswith(TEXT[m.at + len(m.before) :]))

    def test_the_choice_depends_on_the_seed_and_the_file(self):
        first, again, other = (mutants.in_order("lib/core/x.c", TEXT, seed, ()) for seed in (1, 1, 2))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)
        self.assertEqual(sorted(map(str, first)), sorted(map(str, other)))
        few = mutants.in_order("lib/core/x.c", TEXT, 1, [("lib/core/x.c", "a == b", "logic comparison condition", "why")])
        self.assertFalse(any(m.line == 8 and m.kind in ("logic", "comparison", "condition") for m in few))

    def test_each_file_has_its_share(self):
        orders = {"a": list(range(100)), "b": list(range(10)), "c": [1]}
        self.assertEqual(mutants.shares(orders, 3), {"a": 1, "b": 1, "c": 1})
        many = mutants.shares(orders, 23)
        self.assertEqual(many["c"], 1)
        self.assertGreater(many["a"], many["b"])
        sources = [path for path in (ROOT / "lib").rglob("*.c") if "schema" not in path.parts]
        names = {name for name, text in mutants.files(ROOT, set(mutants.NEEDS.values())) if mutants.in_order(name, text, 1, ())}
        missing = {path.relative_to(ROOT).as_posix() for path in sources} - names
        self.assertLessEqual(len(missing), 2, missing)


if __name__ == "__main__":
    unittest.main()
