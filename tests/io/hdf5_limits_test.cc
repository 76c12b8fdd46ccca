// SPDX-License-Identifier: Apache-2.0
// Files of other programs that lead elsewhere, promise too much, or lack a part.
#include "hdf5_foreign.h"

using namespace tartan_test;

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
    expect_refused("blocks uses filter 4", [](Foreign &f) { // szip
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
    expect_refused("2147483647 block columns in 1 heads exceed the 16777216", [](Foreign &f) {
        put_numbers(f.layout, "shape", {9, 2 * (int64_t)INT32_MAX});
    });
    expect_refused("blocks exceeds what can be addressed", [&](Foreign &f) {
        huge(f.tensor, "blocks", H5T_IEEE_F64LE, {(hsize_t)1 << 40, (hsize_t)1 << 20, 16}, {1, 1, 16});
    });
    expect_refused("blocks should hold", [&](Foreign &f) {
        huge(f.tensor, "blocks", H5T_IEEE_F64LE, {3, 3, 2}, {});
    });
}

// A column costs memory but no bytes in the file, so a file without a seal may have 2^24 columns in all heads, or
// as many as it has bytes.
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
    expect_refused("16777217 block columns in 1 heads exceed the 16777216", wide(most + 1, 1));
    expect_refused("4194305 block columns in 4 heads exceed the 16777216", wide(most / 4 + 1, 4));

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
