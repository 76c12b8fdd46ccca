# SPDX-License-Identifier: Apache-2.0
"""Makes data/corrupt: python3 make_corrupt.py FOLDER, with TARTAN_LIBRARY naming libtartan.so. Every file in it must
be refused for ever; what a fuzzer finds is added beside these."""

import os
import pathlib
import sys

import h5py
import numpy

import h5py_test

SEAL = 512


def damage_sealed(folder):
    """A file of Tartan's, its bytes changed."""
    good = folder / "good.h5"
    mask, values = h5py_test.samples(8, 8, (4, 4), seed=1)
    h5py_test.save(good, "w", mask, values, (4, 4), "float32")
    data = good.read_bytes()
    good.unlink()

    def write(name, change):
        changed = bytearray(data)
        changed = change(changed) or changed
        (folder / f"sealed_{name}.h5").write_bytes(changed)

    def flip(at):
        def change(changed):
            changed[at] ^= 1
        return change

    write("flipped_byte", flip(len(data) // 2))
    write("flipped_last_byte", flip(len(data) - 1))
    write("flipped_magic", flip(0))
    write("flipped_length", flip(25))
    write("flipped_hash", flip(40))
    write("flipped_padding", flip(300))
    write("newer_seal", lambda changed: changed[:16] + b"\x03" + changed[17:])
    write("truncated", lambda changed: changed[:-100])
    write("truncated_in_the_seal", lambda changed: changed[:200])
    write("grown", lambda changed: changed + b"\0")


def damage_foreign(folder):
    """A file of another program, which breaks the schema at one place."""
    mask, values = h5py_test.samples(8, 8, (4, 4), seed=1)
    mask[:] = True
    values[values == 0] = 1
    matrix = h5py_test.sparse.bsr_matrix(values, blocksize=(4, 4))

    def write(name, change):
        path = folder / f"foreign_{name}.h5"
        h5py_test.write_by_h5py(path, matrix, values.shape, "float32")
        with h5py.File(path, "a") as file:
            change(file, file["layouts/p"], file["tensors/w"])

    def lists(name, values):
        def change(file, layout, tensor):
            del layout[name]
            layout[name] = numpy.array(values, dtype=numpy.int32)
        return change

    def attribute(which, name, value):
        def change(file, layout, tensor):
            {"file": file, "layout": layout, "tensor": tensor}[which].attrs[name] = value
        return change

    def blocks(**options):
        def change(file, layout, tensor):
            del tensor["blocks"]
            tensor.create_dataset("blocks", **options)
        return change

    def virtual(file, layout, tensor):
        del tensor["blocks"]
        view = h5py.VirtualLayout((4, 4, 4), "f4")
        view[:] = h5py.VirtualSource("/etc/hostname", "x", (4, 4, 4))
        tensor.create_virtual_dataset("blocks", view)

    def soft(file, layout, tensor):
        del tensor["blocks"]
        tensor["blocks"] = h5py.SoftLink("/layouts/p/indices_1")

    def external(file, layout, tensor):
        del file["layouts"]
        file["layouts"] = h5py.ExternalLink("other.h5", "/layouts")

    write("pointers_fall", lists("pointers_to_1", [0, 5, 4]))
    write("pointers_begin_late", lists("pointers_to_1", [1, 2, 4]))
    write("pointers_few", lists("pointers_to_1", [0, 4]))
    write("index_out_of_range", lists("indices_1", [0, 2, 0, 1]))
    write("index_negative", lists("indices_1", [-1, 1, 0, 1]))
    write("index_twice", lists("indices_1", [0, 0, 0, 1]))
    write("frame_overflows", attribute("layout", "shape", numpy.array([2**63 - 1, 8])))
    write("block_too_large", attribute("layout", "block_shape", numpy.array([4096, 4])))
    write("schema_newer", attribute("file", "tartan_schema_version", "2.0"))
    write("schema_other", attribute("file", "tartan_schema", "something"))
    write("layout_missing", attribute("tensor", "layout", "/layouts/q"))
    write("identity_wrong", attribute("layout", "layout_identity", "0" * 32))
    write("blocks_few", blocks(shape=(3, 4, 4), dtype="f4", data=numpy.ones((3, 4, 4))))
    write("blocks_integers", blocks(shape=(4, 4, 4), dtype="i4", data=numpy.ones((4, 4, 4))))
    write("blocks_not_stored", blocks(shape=(4, 4, 4), dtype="f4"))
    write("blocks_huge", blocks(shape=(2**40, 4, 4), dtype="f4", chunks=(64, 4, 4)))
    write("blocks_virtual", virtual)
    write("blocks_soft_link", soft)
    write("layouts_external_link", external)


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    os.makedirs(target, exist_ok=True)
    damage_sealed(target)
    damage_foreign(target)
    (target / "empty.h5").write_bytes(b"")
    (target / "text.h5").write_bytes(b"not a file of Tartan's\n")
