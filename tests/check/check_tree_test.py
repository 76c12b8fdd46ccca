# SPDX-License-Identifier: Apache-2.0
"""What check_tree.py says of a changed list of symbols, and of words in wrong places."""
import unittest

from check_tree import compare_symbols, misused_words


class Symbols(unittest.TestCase):
    LISTED = ["tartan_a", "tartan_b", "tartan_c"]

    def said(self, exported, declared, listed=None):
        return list(compare_symbols(set(exported.split()), set(declared.split()), listed or self.LISTED))

    def test_nothing_of_what_is_as_listed(self):
        self.assertEqual([], self.said("tartan_a tartan_b tartan_c", "tartan_c tartan_b tartan_a"))

    def test_what_was_added(self):
        said = self.said("tartan_a tartan_b tartan_c tartan_new tartan_hidden", "tartan_a tartan_b tartan_c tartan_new tartan_promised")
        self.assertEqual(["added:   tartan_hidden (exported, declared in no public header)",
                          "added:   tartan_new (exported and declared)",
                          "added:   tartan_promised (declared, but not exported)"], said[:3])
        self.assertTrue(said[3].startswith("3 added, 0 removed: "), said[3])

    def test_what_was_removed(self):
        said = self.said("tartan_a", "tartan_b")
        self.assertEqual(["removed: tartan_a (exported, but no longer declared)",
                          "removed: tartan_b (declared, but no longer exported)",
                          "removed: tartan_c (neither exported nor declared)"], said[:3])
        self.assertTrue(said[3].startswith("0 added, 3 removed: "), said[3])

    def test_a_rename_is_both(self):
        said = self.said("tartan_a tartan_b tartan_d", "tartan_a tartan_b tartan_d")
        self.assertEqual(["added:   tartan_d (exported and declared)", "removed: tartan_c (neither exported nor declared)"], said[:2])

    def test_a_name_without_the_prefix(self):
        self.assertIn("blas_gemm: exported without the prefix", self.said("tartan_a tartan_b tartan_c blas_gemm", "tartan_a tartan_b tartan_c"))

    def test_a_list_out_of_order(self):
        for listed in (["tartan_b", "tartan_a"], ["tartan_a", "tartan_a", "tartan_b"]):
            self.assertEqual(["tests/check/abi.txt is not sorted, or has a name twice"],
                             self.said("tartan_a tartan_b", "tartan_a tartan_b", listed))


class Words(unittest.TestCase):
    ROWS = "| stage | a step | `cuda/`, `lib/kernels/` | |\n| line | elements | | |\n| CTA | threads | | thread block |\n"
    FINE = {"cuda/a.cu": "kStages", "lib/kernels/b.c": "int stage_bytes;", "lib/ops/c.c": "a line of staged, backstage and upstaged things"}

    def said(self, **more):
        return list(misused_words(self.ROWS, {**self.FINE, **{f"lib/ops/{name}.c": text for name, text in more.items()}}))

    def test_nothing_where_words_stand_as_the_table_says(self):
        self.assertEqual([], self.said())

    def test_a_word_in_another_place(self):
        for text in ("a stage of it", "run_stage(w);", "kStages = 3", "MOST_STAGES", "stages_of"):
            self.assertEqual(["lib/ops/d.c: 'stage' stands only in cuda/, lib/kernels/"], self.said(d=text), text)

    def test_a_place_without_the_word(self):
        self.assertEqual(["'stage' is not used in lib/kernels/"], list(misused_words(self.ROWS, {"cuda/a.cu": "kStages"})))

    def test_what_a_word_replaces(self):
        self.assertEqual(["lib/ops/d.c: 'thread block', expected 'CTA'"], self.said(d="Thread blocks of 128"))

    def test_no_table(self):
        self.assertEqual(["docs/architecture.md has no table of words"], list(misused_words("", self.FINE)))


if __name__ == "__main__":
    unittest.main()
