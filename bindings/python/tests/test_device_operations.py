# SPDX-License-Identifier: Apache-2.0
"""All operations of the schema on a device equal those of the CPU."""

import numpy as np
import pytest
from device_support import HAS_DEVICE, Exporter
from operation_support import OPS, Operands

import tartan
from tartan import BlockMatrix, DeviceArray, to_device

pytestmark = pytest.mark.skipif(not HAS_DEVICE, reason="no CUDA device here")


def on_device(x):
    if isinstance(x, list):
        return [on_device(y) for y in x]
    if isinstance(x, np.ndarray):
        return to_device(x)
    return x.to_device() if isinstance(x, BlockMatrix) else x


def on_host(x):
    if isinstance(x, list):
        return [on_host(y) for y in x]
    return x.to_host() if isinstance(x, (DeviceArray, BlockMatrix)) else x


def numbers(x):
    return np.asarray(x.values if isinstance(x, BlockMatrix) else x, np.float64)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("op", OPS, ids=str)
def test_equals_the_cpu(rng, op, dtype):
    operands = Operands(op, rng, dtype)
    given = {name: on_device(x) for name, x in operands.items()}
    wanted = op.results({name: x.copy() if isinstance(x, BlockMatrix) else x for name, x in operands.items()})
    found = op.results(given)
    assert found.keys() == wanted.keys()
    for name, x in found.items():
        assert x.device == "cuda:0" and type(x) is (BlockMatrix if isinstance(wanted[name], BlockMatrix) else DeviceArray)
        np.testing.assert_allclose(numbers(on_host(x)), numbers(wanted[name]), rtol=1e-2 if dtype == "float16" else 1e-4, atol=1e-5)


@pytest.mark.parametrize("op", [op for op in OPS if op.arrays_only], ids=str)
def test_arrays_of_other_libraries_and_outputs(rng, op):
    operands = Operands(op, rng)
    wanted = op.results(operands)
    given = {name: Exporter(to_device(x)) for name, x in operands.items()}
    outs = {op.names[a["name"]]: to_device(np.full_like(wanted[a["name"]], np.nan)) for a in op.outputs}
    found = op.results(given, **outs)
    for (name, x), out in zip(found.items(), outs.values()):
        assert x is out
        np.testing.assert_allclose(x.to_host(), wanted[name], rtol=1e-6)
    assert all(x.exported <= 1 for x in given.values())


@pytest.mark.parametrize("op", [op for op in OPS if op.arrays_only], ids=str)
def test_operands_in_two_places_are_refused(rng, op):
    operands = Operands(op, rng)
    first = op.inputs[0]["name"]
    given = {**operands, first: to_device(operands[first])}
    if len(given) > 1:
        with pytest.raises(tartan.TartanError):
            op.call(given)
    with pytest.raises(tartan.TartanError):
        op.call(operands, context="cuda")
    with pytest.raises(tartan.TartanError):
        op.call({**operands, first: to_device(operands[first])}, context="cpu")
