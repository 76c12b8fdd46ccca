// SPDX-License-Identifier: Apache-2.0
// A file as another program would write it, in pieces that a test can spoil.
#ifndef TARTAN_TESTS_HDF5_FOREIGN_H
#define TARTAN_TESTS_HDF5_FOREIGN_H

#include <hdf5.h>

#include "io_support.h"

namespace tartan_test {

inline void put_text(hid_t object, const char *name, const std::string &value, bool variable = true,
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

inline void put_numbers(hid_t object, const char *name, const std::vector<int64_t> &values,
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

inline void put_list(hid_t group, const char *name, const std::vector<int64_t> &values,
                     hid_t type = H5T_STD_I32LE) {
    put_data(group, name, type, H5T_NATIVE_INT64, {values.size()}, values);
}

inline const std::vector<int64_t> pointers = {0, 2, 2, 3}, indices = {1, 3, 0};
inline std::vector<double> block_values() {
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

} // namespace tartan_test

#endif
