# SPDX-License-Identifier: Apache-2.0
"""The shared cases of data/cases: the same bits as C, R and Julia."""

import csv
import pathlib

import numpy as np
import pytest
import tartan

CASES = pathlib.Path(__file__).parents[3] / "data" / "cases"
if not CASES.is_dir():
    pytest.skip("data/cases is not here", allow_module_level=True)
with open(CASES / "products.csv", newline="") as text:
    ROWS = list(csv.DictReader(text))


def test_there_are_cases():
    assert len(ROWS) >= 100


@pytest.fixture(scope="module")
def products():
    with tartan.File(CASES / "products.h5") as file:
        yield file


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['op']} {row['b']} {row['alpha']}")
def test_same_bits(products, row, order):
    a = products.matrix(row["a"])
    b, c = (np.array(products.matrix(row[name]).toarray(), order=order) for name in "bc")
    gates = products.gates(row["a"]) if row["gated"] == "1" else None
    scalars = {"alpha": float(row["alpha"]), "beta": float(row["beta"])}
    if row["op"] == "spmm":
        result = tartan.spmm(a, b, side=row["side"], transpose=row["transpose"] == "1", out=c, gates=gates, **scalars)
    else:
        result = tartan.sddmm(a.copy(), b, c, gates=gates, **scalars).toarray()
    assert tartan.checksum(result) == row["checksum"]


DATA = CASES.parent


@pytest.mark.parametrize("path", sorted((DATA / "golden").rglob("*.h5")), ids=lambda p: p.name)
def test_files_of_released_formats_load(path):
    assert len(tartan.load_all(path)) >= 1
    assert "ok" in tartan.verify(path)


@pytest.mark.parametrize("path", sorted((DATA / "corrupt").glob("*.h5")), ids=lambda p: p.name)
def test_damaged_files_are_refused(path):
    before = path.read_bytes()
    with pytest.raises((tartan.FormatError, tartan.VersionError, tartan.SizeOverflowError), match=path.name):
        tartan.load_all(path)
    assert path.read_bytes() == before


def test_a_newer_schema_names_both_versions():
    with pytest.raises(tartan.VersionError, match=r"2\.\d.*1\.\d"):
        tartan.load_all(DATA / "corrupt" / "foreign_schema_newer.h5")
