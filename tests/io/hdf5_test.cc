// SPDX-License-Identifier: Apache-2.0
// Files of other programs: those that follow the schema load, all others are refused for the right reason.
#include <hdf5.h>

#include "io_support.h"

using namespace tartan_test;

namespace {

// ---- A file as another program would write it, in pieces that a test can spoil ----

void put_text(hid_t object, const char *name, const std::string &value, bool variable = true,
              hsize_t count = 0) {
    if (H5Aexists(object, name) > 0) H5Adelete(object, name);
    hid_t type = H5Tcopy(H5T_C_S1),
          space = count == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
    H5Tset_size(type, variable ? H5T_VARIABLE : value.size() + 3);
    H5Tset_cset(type, H5T_CSET_UTF8);
    if (!variable) H5Tset_strpad(type, H5T_STR_SPACEPAD);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    const char *pointer = value.c_str();
    const std::string padded = value + "   ";
    ASSERT_GE(H5Awrite(attribute, type, variable ? (const void *)&pointer : padded.data()), 0);
    H5Aclose(attribute), H5Sclose(space), H5Tclose(type);
}

void put_numbers(hid_t object, const char *name, const std::vector<int64_t> &values,
                 hid_t type = H5T_STD_I64LE) {
    if (H5Aexists(object, name) > 0) H5Adelete(object, name);
    const hsize_t n = values.size();
    hid_t space = H5Screate_simple(1, &n, nullptr);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    ASSERT_GE(H5Awrite(attribute, H5T_NATIVE_INT64, values.data()), 0);
    H5Aclose(attribute), H5Sclose(space);
}

template <class T>
void put_data(hid_t group, const char *name, hid_t file_type, hid_t memory_type,
              const std::vector<hsize_t> &dims, const std::vector<T> &values, hid_t plist = H5P_DEFAULT) {
    if (H5Lexists(group, name, H5P_DEFAULT) > 0) H5Ldelete(group, name, H5P_DEFAULT);
    hid_t space =
        dims.empty() ? H5Screate(H5S_SCALAR) : H5Screate_simple((int)dims.size(), dims.data(), nullptr);
    hid_t dataset = H5Dcreate2(group, name, file_type, space, H5P_DEFAULT, plist, H5P_DEFAULT);
    ASSERT_GE(dataset, 0);
    if (!values.empty()) {
        ASSERT_GE(H5Dwrite(dataset, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0);
    }
    H5Dclose(dataset), H5Sclose(space);
}

void put_list(hid_t group, const char *name, const std::vector<int64_t> &values, hid_t type = H5T_STD_I32LE) {
    put_data(group, name, type, H5T_NATIVE_INT64, {values.size()}, values);
}

const std::vector<int64_t> pointers = {0, 2, 2, 3}, indices = {1, 3, 0};
std::vector<double> block_values() {
    std::vector<double> values(3 * 3 * 2);
    for (size_t i = 0; i < values.size(); i++) values[i] = (double)i + 1;
    return values;
}

struct Foreign {
    hid_t file, layouts, layout, tensors, tensor;
    explicit Foreign(const std::string &path) {
        file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        put_text(file, "tartan_schema", "block-sparse");
        put_text(file, "tartan_schema_version", "1.0");
        layouts = H5Gcreate2(file, "layouts", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        tensors = H5Gcreate2(file, "tensors", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        layout = H5Gcreate2(layouts, "p", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        put_text(layout, "kind", "layout");
        put_numbers(layout, "shape", {9, 8});
        put_numbers(layout, "block_shape", {3, 2}, H5T_STD_I32LE);
        put_list(layout, "pointers_to_1", pointers);
        put_list(layout, "indices_1", indices);
        tensor = H5Gcreate2(tensors, "w", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        put_text(tensor, "kind", "bsr");
        put_text(tensor, "layout", "/layouts/p");
        put_data(tensor, "blocks", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 3, 2}, block_values());
        link();
    }
    void link() {
        for (const char *name : {"pointers_to_1", "indices_1"}) {
            if (H5Lexists(tensor, name, H5P_DEFAULT) > 0) H5Ldelete(tensor, name, H5P_DEFAULT);
            if (H5Lexists(layout, name, H5P_DEFAULT) > 0)
                H5Lcreate_hard(layout, name, tensor, name, H5P_DEFAULT, H5P_DEFAULT);
        }
    }
    ~Foreign() { H5Gclose(layout), H5Gclose(tensor), H5Gclose(layouts), H5Gclose(tensors), H5Fclose(file); }
};

class Hdf5 : public testing::Test {
  protected:
    Folder folder;
    std::string path = folder / "foreign.h5";

    // Makes the file and spoils it.
    void make(const std::function<void(Foreign &)> &spoil = [](Foreign &) {}) {
        Foreign foreign(path);
        spoil(foreign);
    }

    tartan_status verify() { return tartan_file_verify(path.c_str(), nullptr); }

    void expect_refused(const char *why, const std::function<void(Foreign &)> &spoil) {
        make(spoil);
        EXPECT_FAILS(FORMAT, why, verify());
        EXPECT_NE(std::string(tartan_last_error()).find(path), std::string::npos);
    }

    void expect_good(const std::function<void(Foreign &)> &change) {
        make(change);
        File file = open_file(path);
        ASSERT_NE(file, nullptr);
        EXPECT_EQ(tartan_file_sealed(file.get()), 0);
        Matrix w = get_matrix(file.get(), "w");
        ASSERT_NE(w, nullptr);
        double value = 0;
        ASSERT_OK(tartan_matrix_entry(w.get(), 0, 1, 3, &value)); // block 0: row 1, column 1
        EXPECT_EQ(value, 4);
        ASSERT_OK(tartan_matrix_entry(w.get(), 0, 8, 0, &value)); // block 2: row 2, column 0
        EXPECT_EQ(value, 17);
        EXPECT_OK(verify());
    }
};

TEST_F(Hdf5, WhatFollowsTheSchemaLoads) {
    expect_good([](Foreign &) {});
    expect_good([](Foreign &f) { put_text(f.file, "tartan_schema_version", "1.7"); });
    expect_good([](Foreign &f) { // texts of fixed length, one-element arrays, as R writes them
        put_text(f.file, "tartan_schema", "block-sparse", false);
        put_text(f.file, "tartan_schema_version", "1.0", true, 1);
        put_text(f.layout, "kind", "layout", false, 1);
        put_numbers(f.layout, "heads", {1}, H5T_STD_I32LE);
    });
    for (hid_t type : {H5T_STD_I64LE, H5T_STD_U32LE, H5T_STD_U64LE})
        expect_good([type](Foreign &f) {
            put_list(f.layout, "pointers_to_1", pointers, type);
            put_list(f.layout, "indices_1", indices, type);
            f.link();
        });
    expect_good([](Foreign &f) { // the lists need not be in the tensor too
        H5Ldelete(f.tensor, "pointers_to_1", H5P_DEFAULT);
        H5Ldelete(f.tensor, "indices_1", H5P_DEFAULT);
    });
    expect_good([](Foreign &f) { // things of later minor versions
        put_text(f.layout, "colour", "blue");
        put_list(f.layout, "extra", {1, 2, 3});
        hid_t group = H5Gcreate2(f.tensors, "later", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        put_text(group, "kind", "attention_mask");
        H5Gclose(group);
        put_list(f.tensors, "loose", {1});
    });
    expect_good([](Foreign &f) { // column-major blocks: the same matrix
        std::vector<double> turned;
        for (int block = 0; block < 3; block++)
            for (int c = 0; c < 2; c++)
                for (int r = 0; r < 3; r++) turned.push_back(block * 6 + r * 2 + c + 1);
        put_text(f.tensor, "block_order", "F");
        put_data(f.tensor, "blocks", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 2, 3}, turned);
    });
    expect_good([](Foreign &f) { // chunks with every filter that is allowed
        hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
        const hsize_t chunk[3] = {2, 3, 2};
        H5Pset_chunk(plist, 3, chunk), H5Pset_shuffle(plist), H5Pset_deflate(plist, 1),
            H5Pset_fletcher32(plist);
        put_data(f.tensor, "blocks", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 3, 2}, block_values(), plist);
        H5Pclose(plist);
    });
}

TEST_F(Hdf5, PaddingIsNotBelieved) {
    make([](Foreign &f) { put_numbers(f.layout, "shape", {8, 7}); });
    Matrix w = get_matrix(open_file(path).get(), "w");
    const tartan_array view = values_of(w.get());
    const double *values = (const double *)view.data;
    EXPECT_EQ(values[6 + 1], 0);  // block 1 is in the last column, which has one of two
    EXPECT_EQ(values[12 + 4], 0); // block 2 is in the last row
    EXPECT_EQ(values[6 + 0], 7);
}

TEST_F(Hdf5, RefusesFilesThatAreNotOurs) {
    expect_refused("no attribute tartan_schema", [](Foreign &f) { H5Adelete(f.file, "tartan_schema"); });
    expect_refused("tartan_schema is \"other\"",
                   [](Foreign &f) { put_text(f.file, "tartan_schema", "other"); });
    expect_refused("tartan_schema is not one text",
                   [](Foreign &f) { put_numbers(f.file, "tartan_schema", {1}); });
    expect_refused("tartan_schema is not one text", [](Foreign &f) {
        H5Adelete(f.file, "tartan_schema");
        const hsize_t two = 2;
        hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate_simple(1, &two, nullptr);
        H5Aclose(H5Acreate2(f.file, "tartan_schema", type, space, H5P_DEFAULT, H5P_DEFAULT));
        H5Sclose(space), H5Tclose(type);
    });
    expect_refused("expected a version", [](Foreign &f) { H5Adelete(f.file, "tartan_schema_version"); });
    expect_refused("expected a version",
                   [](Foreign &f) { put_text(f.file, "tartan_schema_version", "new"); });
    make([](Foreign &f) { put_text(f.file, "tartan_schema_version", "3.2"); });
    EXPECT_FAILS(VERSION, "of version 3.2, this library", verify());
    make([](Foreign &f) {
        H5Ldelete(f.file, "tensors", H5P_DEFAULT), H5Ldelete(f.file, "layouts", H5P_DEFAULT);
    });
    EXPECT_OK(verify()); // ours, and empty
}

// An object of an unknown kind is left out; one without a kind has lost it.
TEST_F(Hdf5, RefusesObjectsWithoutAKind) {
    expect_refused("layout \"p\": has no attribute kind", [](Foreign &f) { H5Adelete(f.layout, "kind"); });
    expect_refused("matrix \"w\": has no attribute kind", [](Foreign &f) { H5Adelete(f.tensor, "kind"); });
    expect_refused("matrix \"w\": has no attribute kind", [](Foreign &f) { put_text(f.tensor, "kind", ""); });
    expect_refused("matrix \"empty\": has no attribute kind", [](Foreign &f) {
        H5Gclose(H5Gcreate2(f.tensors, "empty", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    });
}

TEST_F(Hdf5, RefusesFrames) {
    expect_refused("has no attribute shape", [](Foreign &f) { H5Adelete(f.layout, "shape"); });
    expect_refused("has no attribute block_shape", [](Foreign &f) { H5Adelete(f.layout, "block_shape"); });
    expect_refused("shape is not 2 integers", [](Foreign &f) { put_numbers(f.layout, "shape", {9, 8, 1}); });
    expect_refused("shape is not 2 integers", [](Foreign &f) { put_text(f.layout, "shape", "9x8"); });
    for (const std::vector<int64_t> &bad : {std::vector<int64_t>{-1, 8}, {INT64_MAX, 8}, {9, INT64_MIN}})
        expect_refused("frame is not allowed", [&](Foreign &f) { put_numbers(f.layout, "shape", bad); });
    for (const std::vector<int64_t> &bad : {std::vector<int64_t>{0, 2}, {257, 2}, {3, -1}})
        expect_refused("frame is not allowed",
                       [&](Foreign &f) { put_numbers(f.layout, "block_shape", bad); });
    for (int64_t bad : {int64_t(0), int64_t(-1), int64_t(1) << 40})
        expect_refused("frame is not allowed", [&](Foreign &f) { put_numbers(f.layout, "heads", {bad}); });
    expect_refused("grid is [3, 5]", [](Foreign &f) { put_numbers(f.layout, "grid", {3, 5}); });
    expect_refused("has no dataset \"pointers_to_2\"",
                   [](Foreign &f) { put_numbers(f.layout, "heads", {2}); });
}

TEST_F(Hdf5, RefusesIndexLists) {
    expect_refused("has no dataset \"pointers_to_1\"",
                   [](Foreign &f) { H5Ldelete(f.layout, "pointers_to_1", H5P_DEFAULT); });
    expect_refused("has no dataset \"indices_1\"",
                   [](Foreign &f) { H5Ldelete(f.layout, "indices_1", H5P_DEFAULT); });
    expect_refused("pointers_to_1 has 3 entries, expected 4", [](Foreign &f) {
        put_list(f.layout, "pointers_to_1", {0, 2, 3});
    });
    expect_refused("begins with 1", [](Foreign &f) { put_list(f.layout, "pointers_to_1", {1, 2, 2, 3}); });
    expect_refused("pointers_to_1[2] is 1", [](Foreign &f) {
        put_list(f.layout, "pointers_to_1", {0, 2, 1, 3});
    });
    expect_refused("is 9000000000", [](Foreign &f) {
        put_list(f.layout, "pointers_to_1", {0, 2, 9000000000, 3}, H5T_STD_I64LE);
    });
    expect_refused("ends with 2", [](Foreign &f) { put_list(f.layout, "pointers_to_1", {0, 2, 2, 2}); });
    expect_refused("indices_1[1] is 4, but the grid has 4", [](Foreign &f) {
        put_list(f.layout, "indices_1", {1, 4, 0});
    });
    expect_refused("indices_1[0] is -1", [](Foreign &f) { put_list(f.layout, "indices_1", {-1, 3, 0}); });
    expect_refused("expected ascending", [](Foreign &f) { put_list(f.layout, "indices_1", {3, 1, 0}); });
    expect_refused("expected ascending", [](Foreign &f) { put_list(f.layout, "indices_1", {3, 3, 0}); });
    expect_refused("has not 1 dimension", [](Foreign &f) {
        put_data(f.layout, "indices_1", H5T_STD_I32LE, H5T_NATIVE_INT64, {3, 1}, indices);
    });
    for (hid_t type : {H5T_STD_I32BE, H5T_STD_I16LE, H5T_IEEE_F64LE})
        expect_refused("indices_1 does not hold",
                       [type](Foreign &f) { put_list(f.layout, "indices_1", indices, type); });
    expect_refused("identity is \"abc\"", [](Foreign &f) { put_text(f.layout, "layout_identity", "abc"); });
    expect_refused("have the identity",
                   [](Foreign &f) { put_text(f.layout, "layout_identity", std::string(32, '0')); });
    expect_refused("belongs to a layout of identity",
                   [](Foreign &f) { put_text(f.tensor, "layout_identity", std::string(32, '0')); });
}

TEST_F(Hdf5, RefusesBlocks) {
    auto blocks = [](Foreign &f, const std::vector<hsize_t> &dims, hid_t type = H5T_IEEE_F64LE) {
        size_t n = 1;
        for (hsize_t d : dims) n *= d;
        put_data(f.tensor, "blocks", type, H5T_NATIVE_DOUBLE, dims, std::vector<double>(n, 1));
    };
    expect_refused("has no dataset \"blocks\"",
                   [](Foreign &f) { H5Ldelete(f.tensor, "blocks", H5P_DEFAULT); });
    expect_refused("blocks has shape [2, 3, 2], expected [3, 3, 2]", [&](Foreign &f) {
        blocks(f, {2, 3, 2});
    });
    expect_refused("blocks has shape [3, 2, 3]", [&](Foreign &f) { blocks(f, {3, 2, 3}); });
    expect_refused("blocks has not 3 dimensions", [&](Foreign &f) { blocks(f, {18}); });
    expect_refused("blocks has not 3 dimensions", [&](Foreign &f) { blocks(f, {3, 3, 2, 1}); });
    expect_refused("blocks does not hold", [&](Foreign &f) { blocks(f, {3, 3, 2}, H5T_IEEE_F64BE); });
    expect_refused("blocks does not hold", [&](Foreign &f) { blocks(f, {3, 3, 2}, H5T_STD_I32LE); });
    expect_refused("blocks does not hold little-endian float32",
                   [](Foreign &f) { put_text(f.tensor, "dtype", "float32"); });
    expect_refused("dtype is \"float8\"", [](Foreign &f) { put_text(f.tensor, "dtype", "float8"); });
    expect_refused("block_order is \"Q\"", [](Foreign &f) { put_text(f.tensor, "block_order", "Q"); });
    expect_refused("attribute layout is \"\"", [](Foreign &f) { H5Adelete(f.tensor, "layout"); });
    expect_refused("attribute layout is \"/else/p\"",
                   [](Foreign &f) { put_text(f.tensor, "layout", "/else/p"); });
    expect_refused("attribute layout is",
                   [](Foreign &f) { put_text(f.tensor, "layout", "/layouts/../tensors/w"); });
    expect_refused("its layout \"q\" is not in the file",
                   [](Foreign &f) { put_text(f.tensor, "layout", "/layouts/q"); });
    expect_refused("its indices_1 is not a hard link", [](Foreign &f) {
        put_list(f.tensor, "indices_1", {0, 1, 0});
    });
    expect_refused("gates has 2 entries, expected 3", [](Foreign &f) {
        put_list(f.tensor, "gates", {1, 2}, H5T_IEEE_F64LE);
    });
    expect_refused("gates does not hold", [](Foreign &f) {
        put_list(f.tensor, "gates", {1, 2, 3}, H5T_IEEE_F32LE);
    });
    expect_refused("metadata is not valid UTF-8", [](Foreign &f) { put_text(f.tensor, "metadata", "\xff"); });
}

TEST_F(Hdf5, NothingLeadsOutOfTheFile) {
    make();
    std::filesystem::copy(path, folder / "other.h5");
    const std::string other = folder / "other.h5";
    expect_refused("\"p\" is not a hard link", [](Foreign &f) {
        H5Ldelete(f.layouts, "p", H5P_DEFAULT);
        H5Lcreate_soft("/tensors/w", f.layouts, "p", H5P_DEFAULT, H5P_DEFAULT);
    });
    expect_refused("\"layouts\" is not a hard link", [&](Foreign &f) {
        H5Ldelete(f.file, "layouts", H5P_DEFAULT);
        H5Lcreate_external(other.c_str(), "/layouts", f.file, "layouts", H5P_DEFAULT, H5P_DEFAULT);
    });
    expect_refused("\"blocks\" is not a hard link", [&](Foreign &f) {
        H5Ldelete(f.tensor, "blocks", H5P_DEFAULT);
        H5Lcreate_external(other.c_str(), "/tensors/w/blocks", f.tensor, "blocks", H5P_DEFAULT, H5P_DEFAULT);
    });
    expect_refused("blocks lies in another file", [&](Foreign &f) {
        hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_external(plist, other.c_str(), 0, 18 * 8);
        put_data<double>(f.tensor, "blocks", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 3, 2}, {}, plist);
        H5Pclose(plist);
    });
    expect_refused("blocks is a virtual dataset", [&](Foreign &f) {
        const hsize_t dims[3] = {3, 3, 2};
        hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(3, dims, nullptr);
        H5Pset_virtual(plist, space, other.c_str(), "/tensors/w/blocks", space);
        put_data<double>(f.tensor, "blocks", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 3, 2}, {}, plist);
        H5Sclose(space), H5Pclose(plist);
    });
    expect_refused("blocks passes the filter 4", [](Foreign &f) { // szip
        hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
        const hsize_t chunk[3] = {3, 3, 2};
        H5Pset_chunk(plist, 3, chunk), H5Pset_szip(plist, H5_SZIP_NN_OPTION_MASK, 2);
        put_data<double>(f.tensor, "blocks", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 3, 2}, {}, plist);
        H5Pclose(plist);
    });
    expect_refused("\"blocks\" is not a dataset", [](Foreign &f) {
        H5Ldelete(f.tensor, "blocks", H5P_DEFAULT);
        H5Gclose(H5Gcreate2(f.tensor, "blocks", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    });
    expect_refused("\"layouts\" is not a group", [](Foreign &f) {
        H5Ldelete(f.file, "layouts", H5P_DEFAULT);
        put_list(f.file, "layouts", {1});
    });
}

// A small file may not claim sizes that it does not have: nothing is allocated for them.
TEST_F(Hdf5, RefusesSizesThatAreNotThere) {
    const auto huge = [](hid_t group, const char *name, hid_t type, const std::vector<hsize_t> &dims,
                         const std::vector<hsize_t> &chunk) {
        hid_t plist = H5Pcreate(H5P_DATASET_CREATE);
        if (!chunk.empty()) H5Pset_chunk(plist, (int)chunk.size(), chunk.data()), H5Pset_deflate(plist, 9);
        put_data<double>(group, name, type, H5T_NATIVE_DOUBLE, dims, {}, plist);
        H5Pclose(plist);
    };
    for (bool chunked : {false, true}) {
        expect_refused("should hold 17179869184 bytes", [&](Foreign &f) {
            put_numbers(f.layout, "shape", {3 * ((int64_t)INT32_MAX), 8});
            huge(f.layout, "pointers_to_1", H5T_STD_I64LE, {(hsize_t)INT32_MAX + 1},
                 chunked ? std::vector<hsize_t>{4096} : std::vector<hsize_t>{});
        });
        expect_refused("indices_1 should hold", [&](Foreign &f) {
            huge(f.layout, "indices_1", H5T_STD_I64LE, {(hsize_t)1 << 40},
                 chunked ? std::vector<hsize_t>{4096} : std::vector<hsize_t>{});
        });
    }
    expect_refused("2147483647 block columns in 1 heads are more than the 16777216", [](Foreign &f) {
        put_numbers(f.layout, "shape", {9, 2 * (int64_t)INT32_MAX});
    });
    expect_refused("blocks exceeds what can be addressed", [&](Foreign &f) {
        huge(f.tensor, "blocks", H5T_IEEE_F64LE, {(hsize_t)1 << 40, (hsize_t)1 << 20, 16}, {1, 1, 16});
    });
    expect_refused("blocks should hold", [&](Foreign &f) {
        huge(f.tensor, "blocks", H5T_IEEE_F64LE, {3, 3, 2}, {});
    });
}

// A column costs memory but no bytes in the file, so a file without a seal is trusted with 2^24 columns in all heads, or
// with as many as it has bytes.
TEST_F(Hdf5, ColumnsOfALargeGridAreLimited) {
    const int64_t most = 1 << 24;
    const auto wide = [](int64_t columns, int64_t heads) {
        return [=](Foreign &f) {
            put_numbers(f.layout, "shape", {1, columns});
            put_numbers(f.layout, "block_shape", {1, 1});
            put_numbers(f.layout, "heads", {heads});
            const bool one = heads == 1;
            for (const char *name : {"pointers_to_1", "indices_1"}) H5Ldelete(f.layout, name, H5P_DEFAULT);
            put_list(f.layout, one ? "pointers_to_1" : "pointers_to_2",
                     std::vector<int64_t>((size_t)heads + 1));
            put_list(f.layout, one ? "indices_1" : "indices_2", {});
            H5Ldelete(f.tensors, "w", H5P_DEFAULT);
        };
    };
    make(wide(most, 1));
    EXPECT_OK(verify());
    make(wide(most / 4, 4));
    EXPECT_OK(verify());
    expect_refused("16777217 block columns in 1 heads are more than the 16777216", wide(most + 1, 1));
    expect_refused("4194305 block columns in 4 heads are more than the 16777216", wide(most / 4 + 1, 4));

    make([&](Foreign &f) {
        wide(most + 1000, 1)(f);
        put_data(f.file, "ballast", H5T_STD_I8LE, H5T_NATIVE_INT8, {(hsize_t)most},
                 std::vector<int8_t>(most));
    });
    EXPECT_OK(verify());

    Layout layout = from_mask({1, 2 * (most + 1), 1, 2, 1}, std::vector<uint8_t>((size_t)most + 1));
    File file = new_file();
    ASSERT_OK(tartan_file_put_layout(file.get(), "l", layout.get(), nullptr));
    ASSERT_OK(tartan_file_save(file.get(), path.c_str(), TARTAN_KEEP_PLAIN));
    EXPECT_OK(verify()); // the seal vouches for it
}

// Data outside of the file, chunks that are not there, bytes that were added or cut off.
TEST_F(Hdf5, WhatIsMissingOrTooMuchIsDamage) {
    expect_refused("blocks has 1 of 2 chunks", [](Foreign &f) {
        const hsize_t chunk[3] = {2, 3, 2}, start[3] = {0, 0, 0}, dims[3] = {3, 3, 2};
        hid_t plist = H5Pcreate(H5P_DATASET_CREATE), file_space = H5Screate_simple(3, dims, nullptr),
              memory_space = H5Screate_simple(3, chunk, nullptr);
        H5Pset_chunk(plist, 3, chunk), H5Pset_deflate(plist, 1);
        put_data<double>(f.tensor, "blocks", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, {3, 3, 2}, {}, plist);
        hid_t dataset = H5Dopen2(f.tensor, "blocks", H5P_DEFAULT);
        H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, nullptr, chunk, nullptr);
        ASSERT_GE(H5Dwrite(dataset, H5T_NATIVE_DOUBLE, memory_space, file_space, H5P_DEFAULT,
                           block_values().data()),
                  0);
        H5Dclose(dataset), H5Sclose(memory_space), H5Sclose(file_space), H5Pclose(plist);
    });
    make();
    const Bytes good = read_bytes(path);
    // The size of the storage of blocks, 18 numbers of 8 bytes, wherever it stands.
    const uint64_t size = 18 * 8, huge = (uint64_t)1 << 40;
    int claimed = 0;
    for (size_t at = 0; at + sizeof size <= good.size(); at++)
        if (std::memcmp(&good[at], &size, sizeof size) == 0) {
            Bytes bad = good;
            std::memcpy(&bad[at], &huge, sizeof huge);
            write_bytes(path, bad);
            claimed +=
                verify() == TARTAN_ERR_FORMAT &&
                std::string(tartan_last_error()).find("blocks should have 1099511627776 bytes in the file") !=
                    std::string::npos;
        }
    EXPECT_GT(claimed, 0);

    Bytes longer = good;
    longer.insert(longer.begin() + (long)longer.size() / 2, 8, 0);
    write_bytes(path, longer);
    EXPECT_FAILS(FORMAT, "its HDF5 part should end at", verify());
    write_bytes(path, Bytes(good.begin(), good.end() - 8));
    EXPECT_FAILS(FORMAT, "truncated", verify());
}

TEST_F(Hdf5, NamesOfTheFileAreChecked) {
    const std::string longer(300, 'n');
    expect_refused("longer than 255", [&](Foreign &f) {
        H5Lcreate_hard(f.layouts, "p", f.layouts, longer.c_str(), H5P_DEFAULT, H5P_DEFAULT);
    });
    expect_refused("not valid UTF-8", [](Foreign &f) {
        H5Lcreate_hard(f.layouts, "p", f.layouts, "\xff", H5P_DEFAULT, H5P_DEFAULT);
    });
    expect_refused("control character", [](Foreign &f) {
        H5Lcreate_hard(f.tensors, "w", f.tensors, "a\nb", H5P_DEFAULT, H5P_DEFAULT);
    });
}

TEST_F(Hdf5, LeavesNothingOpenAndPrintsNothing) {
    make();
    H5E_auto2_t before, after;
    void *user;
    H5Eget_auto2(H5E_DEFAULT, &before, &user);
    testing::internal::CaptureStderr();
    for (int i = 0; i < 3; i++) {
        EXPECT_OK(verify());
        write_sample(folder / "s.h5", 1);
        EXPECT_OK(tartan_file_verify((folder / "s.h5").c_str(), nullptr));
        expect_refused("does not hold",
                       [](Foreign &f) { put_list(f.layout, "indices_1", indices, H5T_STD_I16LE); });
        expect_refused("is a virtual", [](Foreign &f) {
            const hsize_t n = 3;
            hid_t plist = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, &n, nullptr);
            H5Pset_virtual(plist, space, ".", "/x", space);
            put_data<double>(f.layout, "indices_1", H5T_STD_I32LE, H5T_NATIVE_DOUBLE, {3}, {}, plist);
            H5Sclose(space), H5Pclose(plist);
        });
        make();
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL), 0);
    H5Eget_auto2(H5E_DEFAULT, &after, &user);
    EXPECT_EQ(before, after);
}

} // namespace
