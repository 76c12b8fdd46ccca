// SPDX-License-Identifier: Apache-2.0
// Files of other programs: those that follow the schema load, wrong contents are refused for the right reason.
#include "hdf5_foreign.h"

using namespace tartan_test;

// '%' begins an escape since version 1.1 only.
TEST_F(Hdf5, NamesAreEscapedSinceVersion11) {
    const auto rename = [](Foreign &f, const char *version, const char *link) {
        put_text(f.file, "tartan_schema_version", version);
        put_text(f.tensor, "layout", (std::string("/layouts/") + link).c_str());
        ASSERT_GE(H5Lmove(f.layouts, "p", f.layouts, link, H5P_DEFAULT, H5P_DEFAULT), 0);
        ASSERT_GE(H5Lmove(f.tensors, "w", f.tensors, link, H5P_DEFAULT, H5P_DEFAULT), 0);
    };
    const std::string cases[][3] = {
        {"1.0", "50%", "50%"}, {"1.0", "a%2Fb", "a%2Fb"}, {"1.1", "50%25", "50%"}, {"1.1", "a%2Fb", "a/b"}};
    for (const auto &[version, link, name] : cases) {
        make([&](Foreign &f) { rename(f, version.c_str(), link.c_str()); });
        File file = open_file(path);
        ASSERT_EQ(tartan_file_count(file.get()), 2);
        EXPECT_EQ(tartan_file_name(file.get(), 1), name);
        EXPECT_NE(get_matrix(file.get(), name).get(), nullptr);
    }
    expect_refused("the name of an object has a '%'", [&](Foreign &f) { rename(f, "1.1", "50%"); });
    expect_refused("its attribute layout is \"/layouts/p%\", expected", [](Foreign &f) {
        put_text(f.file, "tartan_schema_version", "1.1");
        put_text(f.tensor, "layout", "/layouts/p%");
    });
}

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

void put_bounds(Foreign &f, const std::vector<int64_t> &rows, const std::vector<int64_t> &cols) {
    put_list(f.layout, "row_bounds", rows, H5T_STD_I64LE);
    put_list(f.layout, "col_bounds", cols);
}

// The blocks of the file on a grid of 3 x 4 whose boundaries it says.
TEST_F(Hdf5, ReadsAndRefusesBoundaries) {
    make([](Foreign &f) {
        put_numbers(f.layout, "shape", {7, 6});
        put_bounds(f, {0, 3, 4, 7}, {0, 1, 3, 5, 6});
    });
    ASSERT_OK(verify());
    const File file = open_file(path);
    const Matrix w = get_matrix(file.get(), "w");
    const double *values = (const double *)values_of(w.get()).data;
    EXPECT_EQ(values[0], 0 + 1); // block 0 is in column 1, which is whole
    EXPECT_EQ(values[6], 7);     // block 1 is in the last column, which has one of two
    EXPECT_EQ(values[6 + 1], 0);
    EXPECT_EQ(tartan_layout_is_variable(get_layout(file.get(), "p").get()), 1);
    using List = std::vector<int64_t>;
    const auto refuse = [&](const char *why, const List &rows, const List &cols) {
        expect_refused(why, [&](Foreign &f) {
            put_numbers(f.layout, "shape", {7, 6});
            put_bounds(f, rows, cols);
        });
    };
    const List rows = {0, 3, 4, 7}, cols = {0, 1, 3, 5, 6};
    refuse("row_bounds does not go from 0 to 7", {0, 3, 4, 6}, cols);
    refuse("row_bounds does not go from 0 to 7", {1, 3, 4, 7}, cols);
    refuse("row_bounds does not go from 0 to 7", {}, cols);
    refuse("row_bounds[2] is 3 after 3, expected blocks of 1 to 256", {0, 3, 3, 7}, cols);
    refuse("row_bounds[2] is 2 after 3", {0, 3, 2, 7}, cols);
    refuse("the largest block of row_bounds is 4, block_shape says 3", {0, 4, 5, 7}, cols);
    refuse("the largest block of col_bounds is 1, block_shape says 2", rows, {0, 1, 2, 3, 4, 5, 6});
    refuse("pointers_to_1 has 4 entries, expected 5", {0, 3, 4, 6, 7}, cols);
    expect_refused("has no dataset \"row_bounds\"",
                   [&](Foreign &f) { put_list(f.layout, "col_bounds", cols); });
    expect_refused("has no dataset \"col_bounds\"", [&](Foreign &f) {
        put_list(f.layout, "row_bounds", {0, 3, 6, 9});
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
    expect_refused("does not have 1 dimension", [](Foreign &f) {
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
    expect_refused("blocks does not have 3 dimensions", [&](Foreign &f) { blocks(f, {18}); });
    expect_refused("blocks does not have 3 dimensions", [&](Foreign &f) { blocks(f, {3, 3, 2, 1}); });
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
