#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows that tests fail when the code is wrong: mutations.py BUILD_FOLDER [PART_OF_A_NAME].

Copies the sources to BUILD_FOLDER, makes one change of the table below at a time, and runs the tests that must notice it.
Exit status 1: a change goes unnoticed, or the text that it replaces is gone (then the row needs an update).
"""
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# What is wrong; file; text; what replaces it; test program ("ops/schema" is schema_test in tests/ops); its filter.
TABLE = [
    ("hash of a seal is not compared", "lib/io/seal.c",
     "if (memcmp(seal + HASH_AT, hash, sizeof hash) != 0)", "if (false)", "io", "Seal.*"),
    ("rest of a seal is not compared", "lib/io/seal.c",
     "if (memcmp(seal, expected, TARTAN_I_SEAL_BYTES) != 0)", "if (false)", "io", "Seal.*"),
    ("lower version of a seal is accepted", "lib/io/seal.c",
     "if (version < TARTAN_I_SEAL_VERSION)", "if (version == 0)", "io", "Seal.*"),
    ("version 0 of a seal is accepted", "lib/io/seal.c",
     "if (version < TARTAN_I_SEAL_VERSION)", "if (version != 0 && version < TARTAN_I_SEAL_VERSION)", "io", "Seal.*"),
    ("changed page keeps its hash", "lib/io/pages.c",
     "pages->list[i].known = false;", "", "io", "PagesTest.*"),
    ("page that changes while it is written keeps its hash", "lib/io/pages.c",
     "if (first <= page_of(pages->at) && page_of(pages->at) <= last) pages->whole = false;", "", "io", "PagesTest.*"),
    ("page written from its middle gets a hash", "lib/io/pages.c",
     "        pages->at = offset;\n        pages->whole = false;", "        pages->at = offset;", "io", "PagesTest.*"),
    ("pages that are cut off keep their hashes", "lib/io/pages.c",
     "forget(pages, page_of(length), INT64_MAX);", "", "io", "PagesTest.*"),
    ("pages are read back for the seal", "lib/io/pages.c",
     "if (pages->whole && count == room) keep_hash(pages, index);", "", "io", "DiskTest.*"),
    ("short read is taken for a whole one", "lib/io/seal.c",
     "        if (n <= 0) return false;\n        at += n, size -= n, offset += n;\n    }\n    return true;\n}\n\n/* Has",
     "        return n > 0;\n    }\n    return true;\n}\n\n/* Has", "io", "DiskTest.*"),
    ("interrupted read is an error", "lib/io/seal.c",
     "        if (n < 0 && errno == EINTR) continue;\n        if (n == 0) errno = 0;",
     "        if (n == 0) errno = 0;", "io", "DiskTest.*"),
    ("short write is taken for a whole one", "lib/io/seal.c",
     "        at += n, size -= n, offset += n;\n    }\n    write_behind",
     "        break;\n    }\n    write_behind", "io", "DiskTest.*"),
    ("interrupted write is an error", "lib/io/seal.c",
     "        if (n < 0 && errno == EINTR) continue;\n        if (n <= 0)", "        if (n <= 0)", "io", "DiskTest.*"),
    ("file is not synchronised", "lib/io/seal.c",
     "return !doomed(EIO) && fsync(fd) == 0;", "return !doomed(EIO);", "io", "DiskTest.*"),
    ("folder is not synchronised", "lib/io/seal.c",
     "(void)!fsync(target->directory_fd);", "(void)0;", "io", "DiskTest.*"),
    ("opened file reaches other programs", "lib/io/seal.c",
     "O_RDONLY | O_CLOEXEC | O_NONBLOCK", "O_RDONLY | O_NONBLOCK", "io", "DiskTest.*"),
    ("temporary file reaches other programs", "lib/io/seal.c",
     "O_EXCL | O_CLOEXEC", "O_EXCL", "io", "DiskTest.*"),
    ("folder reaches other programs", "lib/io/seal.c",
     "O_DIRECTORY | O_CLOEXEC", "O_DIRECTORY", "io", "DiskTest.*"),
    ("hash buffer leaks when reading fails", "lib/io/pages.c",
     "fail:\n    tartan_i_free(buffer);", "    tartan_i_free(buffer);\nfail:", "io", "DiskTest.*"),
    ("outline of a save leaks when saving fails", "lib/io/save.c",
     "    tartan_i_target_discard(&target);\n    outline_clear(&p);", "    tartan_i_target_discard(&target);", "io", "DiskTest.*"),
    ("save through a dangling link replaces the link", "lib/io/seal.c",
     "PASS(follow_links(function, path, resolved));", "snprintf(resolved, sizeof resolved, \"%s\", path);", "io", "Save.*Link*"),
    ("lock around HDF5 is dropped", "lib/io/hdf5_driver.c",
     "    pthread_mutex_lock(&lock);", "", "io", "Driver.*"),
    ("HDF5 out of memory is a format error", "lib/io/hdf5_driver.c",
     "found.memory ? TARTAN_ERR_MEMORY : otherwise", "otherwise", "io", "Driver.*"),
    ("disk error is a format error", "lib/io/hdf5_check.c",
     "if (call->disk->error != 0)", "if (false)", "io", "DiskTest.*"),
    ("heads do not count as columns", "lib/io/hdf5.c",
     "if (heads * grid[1] > call->most_columns)", "if (grid[1] > call->most_columns)", "io", "Hdf5.*Columns*"),
    ("one column too many is trusted", "lib/io/hdf5.c",
     "if (heads * grid[1] > call->most_columns)", "if (heads * grid[1] > call->most_columns + 1)", "io", "Hdf5.*Columns*"),
    ("sealed files have the limit on columns", "lib/io/hdf5.c",
     "sealed ? INT64_MAX : size", "size", "io", "Hdf5.*Columns*"),
    ("large files have the limit of small ones", "lib/io/hdf5.c",
     "size > FEW_COLUMNS ? size : FEW_COLUMNS", "FEW_COLUMNS", "io", "Hdf5.*Columns*"),
    ("missing chunks read as zeros", "lib/io/hdf5_check.c",
     "if (chunks != expected)", "if (false)", "io", "Hdf5.*"),
    ("checksum of a chunk is not compared", "lib/io/hdf5_chunks.c",
     "skipped == 0 && checksum_holds(chunk, bytes)", "skipped == 0", "io", "Save.*Seal"),
    ("escaped names are listed in the order of links", "lib/io/hdf5_list.c",
     "if (reader->escaped && kept > 1)", "if (false)", "io", "Save.*Slashes*"),
    ("names of version 1.0 are escaped", "lib/io/hdf5.c",
     "reader->escaped = minor >= 1;", "reader->escaped = true;", "io", "Hdf5*:Golden*"),
    ("data may lie outside of the file", "lib/io/hdf5_check.c",
     "if (stored > call->file_bytes)", "if (false)", "io", "Hdf5.*"),
    ("file may be longer than it says", "lib/io/hdf5_driver.c",
     "disk->end_allocated != disk->end_written", "false", "io", "Hdf5.*"),
    ("bounds of a partition are not the nearest", "lib/layout/statistics.c",
     "if (low > 0 && target - row_pointers[low - 1] < row_pointers[low] - target) low--;", "", "layout", "Partition.*"),
    ("workers count each other's columns", "lib/layout/layout.c",
     "first == 0 ? pointers[line] : first_from(block_cols, pointers[line], end, first);", "pointers[line];", "layout", "Finish.*"),
    ("worker places the columns of the next one", "lib/layout/layout.c",
     "for (; id < end && block_cols[id] < last; id++) {", "for (; id < end && block_cols[id] <= last; id++) {",
     "layout", "Finish.*"),
    ("layouts of one hash are equal", "lib/layout/lists.c",
     "memcmp(a->block_cols, b->block_cols, (size_t)a->blocks * sizeof *a->block_cols) == 0;", "true;", "layout", "Identity.*"),
    ("layouts of one hash and other rows are equal", "lib/layout/lists.c",
     "memcmp(a->row_pointers, b->row_pointers, pointers * sizeof *a->row_pointers) == 0 &&", "", "layout", "Identity.*"),
    ("random numbers below n are biased", "lib/core/random.c",
     "while ((uint32_t)product < unfair);", "while (0);", "core", "Random.*"),
    ("devices share their addresses", "lib/core/array.c",
     "(a->device_type != TARTAN_CPU && a->device_id != b->device_id)", "false", "core", "Array.*"),
    ("host memory is divided by device id", "lib/core/array.c",
     "(a->device_type != TARTAN_CPU && a->device_id != b->device_id)", "a->device_id != b->device_id", "core", "Array.*"),
    ("start of a thread is not checked", "lib/core/parallel.c",
     "threads[i].started = pthread_create(&threads[i].thread, NULL, run_fresh, &threads[i]) == 0;",
     "threads[i].started = (pthread_create(&threads[i].thread, NULL, run_fresh, &threads[i]), true);", "core", "Parallel.*"),
    ("text has no room for its end", "lib/core/memory.c",
     "text->length + more < text->capacity", "text->length + more <= text->capacity", "core", "Text.*"),
    ("plan is made twice", "lib/layout/plans.c",
     "        node = find(plans, key); /* another thread may have been first */\n", "", "backend", "Plans.*"),
    ("tiles are taken for granted", "lib/core/cpu.c",
     "== 0 && (states >> XFEATURE_XTILEDATA & 1);", "== 0;", "core", "Cpu*"),
    ("tiles are used without permission", "lib/kernels/kernels.c",
     "if (feature == TARTAN_I_CPU_AMX && !tartan_i_cpu_tiles()) continue;", "", "core", "Cpu*"),
    ("gate is not rounded to f32", "lib/backend/cpu_product.c",
     "return k->dtype == TARTAN_F64 ? gate : (double)(float)gate;", "return gate;", "ops", "Spmm.Gates*"),
    ("last worker leaves rows without blocks", "lib/backend/cpu_product.c",
     "*end = w == workers - 1 ? rows : bisect_rows(pointers, rows, to);",
     "*end = bisect_rows(pointers, rows, w == workers - 1 ? to - 1 : to);", "ops", "Spmm.LastRows*"),
    ("worker of rows begins at its neighbour's", "lib/backend/cpu_product.c",
     "*begin = bisect_rows(pointers, rows, from);", "*begin = w == 0 ? 0 : bisect_rows(pointers, rows, from) + 1;",
     "ops", "Spmm.LastRows*"),
    ("last block rows are lost", "lib/backend/cpu_team.c",
     "if (*begin < team->block_rows) return true;", "if (*end < team->block_rows) return true;", "ops", "Spmm.Random*"),
    ("rows beyond a multiple of strips are lost", "lib/backend/cpu_product.c",
     "part.rows = rows / groups + (g < rows % groups);", "part.rows = rows / groups;", "ops", "Spmm.Random*"),
    ("sliver over two batch entries is used in place", "lib/backend/cpu_spmm_pack.c",
     " && s->first / n == (s->first + s->width - 1) / n;", ";", "ops", "Spmm.BatchEntries*"),
    ("block that is gated away is multiplied", "lib/backend/cpu_spmm.c",
     "if (gate == 0) continue;", "", "ops", "Spmm.AGateOfZero*"),
    ("slivers of a long row share their sums", "lib/backend/cpu_spmm.c",
     "= end - at <= p->batch ? 0 : tartan_i_spmm_sums_bytes(p);", "= 0;", "ops", "Spmm.RowsOfManyBlocks"),
    ("each list of terms begins at zero", "lib/backend/cpu_spmm.c",
     "        start = false;\n", "", "ops", "Spmm.RowsOfManyBlocks"),
    ("each round begins at zero", "lib/backend/cpu_sddmm.c",
     ".first = p->first && s == p->segments,", ".first = s == p->segments,", "ops", "Sddmm.LongContractions"),
    ("segment reaches beyond its round", "lib/backend/cpu_sddmm.c",
     "        s->k = smaller(s->k, (p->round_units - at) * product->group);\n", "", "ops", "Sddmm.LongContractions"),
    ("sums of several rounds do not wait", "lib/backend/cpu_sddmm.c",
     "if (p->round_units == p->all_units && p->all_segments <= TARTAN_I_SDDMM_SEGMENTS)",
     "if (p->round_units == p->all_units)", "ops", "Sddmm.LongContractions"),
    ("first block of a panel is passed over", "lib/backend/cpu_sddmm.c",
     "if (cols[middle] < col)", "if (cols[middle] <= col)", "ops", "Sddmm.Random*"),
    ("X of another row of blocks is used", "lib/backend/cpu_sddmm.c",
     "    bool is_packed = false;\n", "    bool is_packed = w->block_row > 0;\n", "ops", "Sddmm.Random*"),
    ("closed context is used", "lib/ops/call.c",
     "if (!tartan_i_is(context, TARTAN_I_CONTEXT))", "if (context == NULL)", "ops/schema", "*Refusals.Handles*"),
    ("outputs may overlap inputs", "lib/ops/call.c",
     "    PASS(tartan_i_op_check_apart(&bound, arguments));\n", "", "ops/schema", "*Outputs.Overlapping*"),
    ("numbers beyond the dtype of sums are taken", "lib/ops/call.c",
     "return given ? check_reals(op, bound->dtype) : TARTAN_OK;", "return TARTAN_OK;", "ops/schema", "*Options.*"),
    ("what a check made is not ended", "lib/ops/call.c",
     "if (schema->end != NULL) schema->end(&op);", "", "ops/schema", "*Refusals.*channel_linear*"),
    ("matrices are held after the call", "lib/ops/call.c",
     "run(schema, context, arguments, positional, options);\n    let_go(&h);", "run(schema, context, arguments, positional, options);",
     "ops/schema", "*Refusals.NothingThatFits*"),
    ("gradient of an input that is not there is a result", "lib/ops/call.c",
     "(a->optional && a->gradient_of > 0 && given[a->gradient_of - 1] == NULL)", "false", "ops/schema", "*Described.Infer*"),
    ("second operand may be of any dtype", "lib/ops/call_check.c",
     "return t == 0 ? is_wide(dtype) : dtype == t;", "return is_wide(dtype);", "ops/schema", "*Refusals.Dtypes*"),
    ("operands may be of 8 bits", "lib/ops/call_check.c",
     "return tartan_i_is_number(dtype) && !tartan_i_is_f8(dtype);", "return tartan_i_is_number(dtype);", "ops/schema", "*Refusals.Dtypes*"),
    ("size with a name may differ", "lib/ops/call_check.c",
     "at + n > array->ndim || !equal_sizes(shape, sizes, n)", "at + n > array->ndim", "ops/schema", "*Refusals.Shapes*"),
    ("dimensions may follow those of a shape", "lib/ops/call_check.c",
     "return at == array->ndim;", "return true;", "ops/schema", "*Refusals.Shapes*"),
    ("alternative that does not fit decides sizes", "lib/ops/call_check.c",
     "        bound->known = known;\n", "", "ops/schema", "Call.Alternatives"),
    ("any sizes broadcast", "lib/ops/call_check.c",
     "if (a != b && a != 1 && b != 1) return -1;", "", "ops/schema", "*Refusals.Shapes*:Operations.Broadcasting"),
    ("repeated option of an operation is taken", "lib/ops/call_options.c",
     "!(*given >> i & 1), ARGUMENT,", "true, ARGUMENT,", "ops/schema", "*Options.UnknownOrRepeated*"),
    ("option may be the bound that it must exceed", "lib/ops/call_options.c",
     "(rule->above ? value > rule->low : value >= rule->low)", "(value >= rule->low)", "ops/schema", "*Options.OutOfRange*"),
    ("flag is 0 by default", "lib/ops/call_options.c",
     "*(bool *)member = rule->value != 0;", "*(bool *)member = false;", "ops/schema", "*Options.Defaults*:CallOptions.Values"),
    ("argument of its own is an option, too", "lib/ops/call_options.c",
     "return !(apart && schema->options[i].positional);", "return true;", "ops/schema", "CallOptions.*"),
    ("number that is an argument may be out of range", "lib/ops/call_options.c",
     "CHECK_IN(schema->function, in_range(rule, positional->number), ARGUMENT,", "CHECK_IN(schema->function, true, ARGUMENT,",
     "ops/schema", "CallOptions.*:*Options.*"),
]


# The library is not optimised, so a share of the random cases must do.
ENVIRONMENT = os.environ | {"TARTAN_TEST_SHARE": "7", "OMP_WAIT_POLICY": "passive"}


def run(*command, timeout=900):
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, env=ENVIRONMENT)
    except subprocess.TimeoutExpired:
        return -1, "ran too long"
    return done.returncode, done.stdout


def copy_tree(tree):
    """The sources that the library and its C++ tests need, as they are in the working tree."""
    for name in ("meson.build", "meson_options.txt", "lib", "cuda", "swig", "bindings", "tests", "data", "notebooks"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, copy_function=copy_if_newer, dirs_exist_ok=True)
        else:
            copy_if_newer(source, tree / name)


def copy_if_newer(source, target):
    target = pathlib.Path(target)
    if not target.exists() or target.read_bytes() != pathlib.Path(source).read_bytes():
        shutil.copy(source, target)


def test(build, program, only):
    folder, _, name = program.rpartition("/")
    target = f"tests/{folder or name}/{name}_test"
    code, text = run("ninja", "-C", str(build), target)
    if code != 0:
        return None, text
    return run(str(build / target), "--gtest_brief=1", f"--gtest_filter={only}", timeout=120)


def main(folder, part=""):
    tree, build = pathlib.Path(folder) / "tree", pathlib.Path(folder) / "build"
    tree.mkdir(parents=True, exist_ok=True)
    copy_tree(tree)
    if not (build / "build.ninja").exists():
        code, text = run("meson", "setup", str(build), str(tree), "-Dbuildtype=plain", "-Dpython=disabled", "-Dr=disabled",
                         "-Djulia=disabled", "-Dcuda=disabled")
        if code != 0:
            sys.exit(text)
    rows = [row for row in TABLE if part in row[0]]
    for program, only in sorted({(row[4], row[5]) for row in rows}):
        code, text = test(build, program, only)
        if code != 0:
            sys.exit(f"{text}\nmutations: {program} {only} fails as it is")
    faults = 0
    for name, file, before, after, program, only in rows:
        path, begin = tree / file, time.monotonic()
        good = path.read_text()
        if good.count(before) != 1:
            verdict = f"STALE: {file} has the text {good.count(before)} times"
        else:
            path.write_text(good.replace(before, after))
            code, text = test(build, program, only)
            path.write_text(good)
            verdict = f"DOES NOT COMPILE\n{text}" if code is None else "UNNOTICED" if code == 0 else "noticed"
        faults += verdict != "noticed"
        print(f"{verdict:9}  {name} ({time.monotonic() - begin:.1f} s)", flush=True)
    return 1 if faults else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
