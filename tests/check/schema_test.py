# SPDX-License-Identifier: Apache-2.0
"""What the reader of the schema of operations refuses: python3 schema_test.py FOLDER_OF_THE_SCHEMA."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, sys.argv.pop(1) if len(sys.argv) > 1 else str(pathlib.Path(__file__).resolve().parents[2] / "lib/ops/schema"))
import c_functions  # noqa: E402
import c_structs  # noqa: E402
import c_tables  # noqa: E402
import schema  # noqa: E402

X = 'IN(x, ARRAY, T, "[lines..., n]", "numbers")'
Y = 'OUT(y, ARRAY, O, "=x", "the result", MAY_BE(x))'


class Entries(unittest.TestCase):
    def load(self, *entries, points='POINT1(twice, "2 x", x + x, g + g)'):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "a.def").write_text("\n".join(entries))
            (path / "points").write_text(points)
            return schema.load(path, path / "points")

    def refused(self, says, *items, name="a"):
        with self.assertRaises(schema.SchemaError) as raised:
            list(c_tables.tables(self.load(f'OP({name}, "help", {" ".join(items)})')))
        self.assertIn(says, str(raised.exception))

    def test_what_fits(self):
        ops = self.load(f'OP(a, "help", {X} REAL(e, 1, "0 < <= 2", "a number") {Y})')
        self.assertEqual(["a", "twice", "twice_gradient"], [op.name for op in ops])
        self.assertEqual(["x", "e", None, "y"], [i and i.name for i in ops[0].items])
        tables = "\n".join(c_tables.tables(ops))
        self.assertIn(".low = 0, .high = 2, .above = true, .below = false", tables)
        self.assertIn("a finite number above 0 and of 2 or less", tables)

    def test_parameters_of_functions(self):
        ops = self.load(points='POINT1_WITH(f, (REAL(a, 1, "0 <", "a factor"), FLAG(b, "a choice")), "help", p * x, p * g)')
        self.assertEqual([("a", "real"), ("b", "flag")], [(o.name, o.kind) for o in ops[1].options])
        tables = "\n".join(c_tables.tables(ops))
        self.assertIn("point1.p[0]", tables)
        self.assertIn('.member = offsetof(tartan_op, point1.p[1]), .value = 0, .as_real = true', tables)
        for parameters in ("a", "()", '(WHOLE(n, 1, "0 <", "a number"))', "(" + ", ".join(f'FLAG({n}, "help")' for n in "abcde") + ")"):
            with self.assertRaises(schema.SchemaError) as raised:
                self.load(points=f'POINT1_WITH(f, {parameters}, "help", x, g)')
            self.assertIn("expected 1 to 4 parameters, REAL or FLAG, in brackets", str(raised.exception))

    def test_names(self):
        self.refused("a name is there twice", X, X)
        self.refused("twice is there twice", X, Y, name="twice")
        self.refused("y may not be z", X, 'OUT(y, ARRAY, O, "=x", "the result", MAY_BE(z))')
        self.refused("the gradient b of a is no operation", X, Y, "GRADIENT(b)")

    def test_words(self):
        self.refused("the kind GRID is none of", 'IN(x, GRID, T, "any", "numbers")')
        self.refused("the dtype Q is none of", 'IN(x, ARRAY, Q, "any", "numbers")')
        self.refused("the help is missing", 'IN(x, ARRAY, T, "any", "")')
        self.refused("is no item", "NOTHING(x)")
        self.refused("expected name, default, range and help", X, 'REAL(e, 1, "help")')
        self.refused("expected name, default, words and help", X, 'WORD(mode, c, (a, b), "help")')

    def test_shapes(self):
        self.refused("'n n' is no item of a shape", 'IN(x, ARRAY, T, "[n n]", "numbers")')
        self.refused("'n' is no shape", 'IN(x, ARRAY, T, "n", "numbers")')
        self.refused("y is =z, expected an argument before it", X, 'OUT(y, ARRAY, O, "=z", "the result")')
        self.refused("y has t... & n..., expected both in shapes before it", X, 'OUT(y, ARRAY, O, "[t... & n...]", "the result")')
        self.refused("y has sizes of w, expected an argument before it that is always given", X,
                     'IN_OPT(w, MATRIX, T, "any", "weights") OUT(y, ARRAY, O, "[w.blocks]", "the result")')
        self.refused("m is on w, which may be left out", X,
                     'IN_OPT(w, MATRIX, T, "any", "weights") IN(m, MATRIX, T, "on w", "weights")')

    def test_computed_shapes(self):
        ops = self.load(f'OP(a, "help", {X} OUT(y, ARRAY, O, "{{[n, out...]}}", "the result") SHAPES(of_a))')
        self.assertTrue(ops[0]["y"].computed and not ops[0]["x"].computed)
        self.assertEqual("[n, out...]", ops[0]["y"].shape)
        tables = "\n".join(c_tables.tables(ops))
        self.assertIn(".rule = {.like = -1, .computed = true}", tables)
        self.assertIn(".shapes = of_a", tables)
        self.assertIn("enum { TARTAN_I_A_ARGUMENT_X, TARTAN_I_A_ARGUMENT_Y };", "\n".join(c_structs.structs(ops)))
        neither = "expected SHAPES and shapes in braces, or neither"
        self.refused(neither, X, 'OUT(y, ARRAY, O, "{[n]}", "the result")')
        self.refused(neither, X, Y, "SHAPES(of_a)")
        for kind, shape in (("ARRAY", "{[n]"), ("MATRIX", "{[n]}")):
            self.refused(f"y is {shape}, expected an array, and words in braces", X,
                         f'OUT(y, {kind}, O, "{shape}", "the result") SHAPES(of_a)')

    def test_dtypes(self):
        self.refused("g is of S, expected an argument of T before it", 'IN(g, ARRAY, S, "[n]", "numbers")', X)
        self.refused("all arguments of T may be left out, as x may", 'IN_OPT(x, ARRAY, T, "[n]", "numbers")')
        self.load(f'OP(a, "help", IN_OPT(z, ARRAY, T, "any", "numbers") {X} {Y})')
        self.refused("m is of bytes, expected an input", X, 'OUT(m, ARRAY, U8, "[n]", "a mask")')

    def test_the_base_of_indices(self):
        self.refused("expected an argument of I, whose BASE it is", X, Y, "BASE()")
        op = self.load(f'OP(a, "help", {X} IN(i, ARRAY, I, "[n]", "indices") WHOLE(k, 1, "", "a number") BASE() {Y})')[0]
        self.assertEqual((["k", "base"], ["k"], True), ([o.name for o in op.options], [o.name for o in op.asked], op.base))
        self.assertFalse(self.load(f'OP(a, "help", {X} WHOLE(base, 1, "", "a number") {Y})')[0].base)

    def test_old_values(self):
        items = f'{X} IN_OPT(m, LAYOUT, NONE, "any", "a layout") FLAG(add, "adds") NUMBER(beta, 0, "", "a factor") WHOLE(k, 0, "", "a number")'
        ops = self.load(f'OP(a, "help", {items} OUT(y, ARRAY, O, "=x", "the result", OLD(m, add, beta)))')
        self.assertEqual(["m", "add", "beta"], ops[0]["y"].old)
        self.assertIn(".old_arguments = 0x2, .old_options = 0x3", "\n".join(c_tables.tables(ops)))
        for name in ("x", "k", "z"):
            self.refused(f"old values of y can't depend on {name}, expected an optional input, a flag or a number", items,
                         f'OUT(y, ARRAY, O, "=x", "the result", OLD({name}))')
        self.refused("old values of x can't depend on add", 'IN(x, ARRAY, T, "[n]", "numbers", OLD(add)) FLAG(add, "adds")')

    def test_windows_and_lengths(self):
        ops = self.load(f'OP(a, "help", {X} WINDOWS(w, "windows") LENGTHS(size, "lengths") {Y})')
        self.assertEqual(["w"], [o.name for o in ops[0].options if o.positional])
        self.assertEqual(["const char *w", "const char *options"], [d for d, _ in c_functions.parameters(ops[0])][1:3])
        functions = "\n".join(c_functions.functions(ops))
        self.assertIn("{.text = w}", functions)
        self.refused("expected name and help", X, Y, "WINDOWS(w)")

    def test_conversions(self):
        by_hand = "BY_HAND(b, READS(ARRAY, x, x))"
        ops = self.load(by_hand, f'OP(a, "help", {X} {Y} AS(b) CHECK(check_a))')
        self.assertEqual(("b", "a"), (ops[1].kind, ops[1].struct))
        structs = "\n".join(c_structs.structs(ops))
        self.assertIn("} tartan_op_a;", structs)
        self.assertIn("X(B, b)", structs)
        self.assertNotIn("X(A, a)", structs)
        self.assertIn(".kind = TARTAN_OP_B", "\n".join(c_tables.tables(ops)))
        self.refused("expected CHECK, which makes b of it", X, Y, "AS(b)")
        self.refused("a is run as b, which is no operation by hand", X, Y, "AS(b) CHECK(check_a)")

    def test_operations_made_of_others(self):
        ops = self.load(f'OP(a, "help", {X} {Y} RUNS(run_a))')
        structs = "\n".join(c_structs.structs(ops))
        self.assertIn("} tartan_op_a;", structs)
        self.assertIn("X(a)", structs)
        self.assertNotIn("X(A, a)", structs)
        self.assertIn('.function = "tartan_a", .run = run_a', "\n".join(c_tables.tables(ops)))
        for item in ("CHECK(check_a)", 'KEEPS("bool", b)'):
            self.refused("expected RUNS without CHECK, KEEPS and AS", X, Y, "RUNS(run_a)", item)

    def test_operations_made_of_others_that_backends_may_have(self):
        ops = self.load(f'OP(a, "help", {X} {Y} FLOPS(2) RUNS(run_a))')
        structs = "\n".join(c_structs.structs(ops))
        self.assertIn("X(A, a)", structs)
        self.assertEqual(1, structs.count("} tartan_op_a;"))
        self.assertIn(".run = run_a, .kind = TARTAN_OP_A, .whole = true", "\n".join(c_tables.tables(ops)))

    def test_where(self):
        with self.assertRaises(schema.SchemaError) as raised:
            self.load("", f'OP(a, "help", {X}', "")
        self.assertRegex(str(raised.exception), r"^a.def:\d+: ")


if __name__ == "__main__":
    unittest.main()
