# SPDX-License-Identifier: Apache-2.0
"""Messages of the library speak of arguments and functions by their names in Python (conftest checks those of all tests)."""

import pathlib
import re

import numpy as np
import pytest

import tartan
from tartan import BlockMatrix, Layout
from tartan._texts import in_python

LIBRARY = pathlib.Path(__file__).resolve().parents[3] / "lib"


def layout():
    return Layout.from_mask([[1, 0], [1, 1]], 4)


@pytest.mark.parametrize(
    "text, call",
    [
        ("indptr has 1 entries", lambda: Layout.from_csr((4, 4), 4, [0], [])),
        ("cols[1] is 2", lambda: Layout.from_csr((8, 8), 4, [0, 2, 2], [0, 2])),
        ("rows[0] is 4", lambda: Layout.from_coordinates((8, 8), 4, [4], [0])),
        ("cols has 1 entries, expected 2 (as rows)", lambda: Layout.from_coordinates((8, 8), 4, [0, 1], [0])),
        ("block is 0 x 0", lambda: Layout.pattern("dense", (8, 8), 0)),
        ("block is of type float", lambda: Layout.pattern("dense", (8, 8), 2.5)),
        ("shape is of type str", lambda: Layout.pattern("dense", ("8", 8), 4)),
        ("name is 'plaid'", lambda: Layout.pattern("plaid", (8, 8), 4)),
        ("parameters has 'windw', which pattern 'local' does not have", lambda: Layout.pattern("local", (8, 8), 4, windw=1)),
        ("rows[1] is 0", lambda: layout().permute([0, 0])),
        ("the range of rows is 0 .. 3", lambda: layout()[0:3]),
        ("block", lambda: layout().reblock((0, 4))),
        ("rows[0] is 9", lambda: BlockMatrix.from_coo((8, 8), [9], [0], [1.0], block=4)),
        ("rows[0] is 9, expected 0 .. 7", lambda: BlockMatrix.from_coo(layout(), [9], [0], [1.0])),
        ("indptr", lambda: BlockMatrix.from_csr((8, 8), [0, 2], [0, 1], [1.0, 1.0], block=4)),
        ("indptr", lambda: BlockMatrix.from_csr(layout(), [0, 2], [0, 1], [1.0, 1.0])),
        ("cols[1] is 9", lambda: BlockMatrix.from_csr((2, 8), [0, 1, 2], [0, 9], [1.0, 1.0], block=4)),
        ("the number is 0", lambda: BlockMatrix.zeros(layout()) / 0),
        ("values has 7 for (0, 4)", lambda: BlockMatrix.zeros(layout()).setdiag(np.full(4, 7.0), 4)),
        ("adds blocks", lambda: BlockMatrix.zeros(layout()).setdiag(np.full(4, 7.0), 4)),
        ("dropout is 1.5, expected a finite number", lambda: tartan.attention(*[np.ones((8, 4))] * 3, layout(), dropout=1.5)),
        ("causal_from is given, which needs causal=True",
         lambda: tartan.attention(*[np.ones((8, 4))] * 3, layout(), causal_from=2)),
        ("size has length", lambda: tartan.BlockConv(layout(), (9, 9)).output_size((4, 4))),
        ("matrices[1] has 3 columns, expected 8 (as the first)",
         lambda: tartan.vstack([BlockMatrix.zeros(layout()), BlockMatrix.from_dense(np.ones((3, 3)), block=4)])),
        ("out is read-only", lambda: BlockMatrix.zeros(layout()).toarray(out=np.broadcast_to(0.0, (8, 8)))),
    ],
)  # fmt: skip
def test_names_are_those_of_python(text, call):
    with pytest.raises(tartan.TartanError) as caught:
        call()
    assert text in str(caught.value) and "tartan_" not in str(caught.value), caught.value


def test_names_of_files_stay_as_they_are(tmp_path):
    path = tmp_path / "tartan_layout_to_host: block_rows.h5"
    with pytest.raises(FileNotFoundError, match="tartan_layout_to_host: block_rows.h5: cannot be opened") as caught:
        tartan.load(path)
    assert str(caught.value).startswith(str(path))


def test_every_function_that_a_message_advises_has_a_name_in_python():
    advised = set()
    for source in LIBRARY.rglob("*.c"):
        for line in re.findall(r'"[^"\n]*"', source.read_text()):
            if source.parent.name != "io" and "/" not in line and " " in line:
                advised.update(re.findall(r"tartan_\w+", line))
    assert len(advised) > 9
    kept = {name for name in advised if name in in_python(f"tartan_spmm: x is y, expected a {name} or that of {name}.")}
    assert kept <= {"tartan_hooks"}  # of C programs
