// SPDX-License-Identifier: Apache-2.0
// What other programs find in a file of ours, by HDF5 alone.
#include <hdf5.h>

#include "io_support.h"

using namespace tartan_test;

namespace {

class Hdf5Write : public testing::Test {
  protected:
    Folder folder;
    std::string path = folder / "w.h5";
    hid_t file = -1;

    void open() {
        file = H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
        ASSERT_GE(file, 0) << "HDF5 finds its part behind the seal";
    }
    ~Hdf5Write() override {
        if (file >= 0) H5Fclose(file);
    }
    std::string text(const char *object, const char *name) {
        if (H5Aexists_by_name(file, object, name, H5P_DEFAULT) <= 0) return "(none)";
        hid_t attribute = H5Aopen_by_name(file, object, name, H5P_DEFAULT, H5P_DEFAULT),
              type = H5Aget_type(attribute);
        std::string copy(H5Tget_size(type), 0);
        EXPECT_EQ(H5Tis_variable_str(type), 0);
        EXPECT_EQ(H5Tget_cset(type), H5T_CSET_UTF8);
        EXPECT_GE(H5Aread(attribute, type, copy.data()), 0);
        H5Tclose(type), H5Aclose(attribute);
        return copy;
    }
    template <class T> std::vector<T> data(const char *name, hid_t type) {
        hid_t dataset = H5Dopen2(file, name, H5P_DEFAULT), space = H5Dget_space(dataset);
        std::vector<T> values((size_t)H5Sget_simple_extent_npoints(space));
        EXPECT_GE(H5Dread(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0) << name;
        H5Sclose(space), H5Dclose(dataset);
        return values;
    }
    haddr_t address(const char *name) {
        H5O_info_t info;
        EXPECT_GE(H5Oget_info_by_name(file, name, &info, H5P_DEFAULT), 0) << name;
        return info.addr;
    }
};

TEST_F(Hdf5Write, AttributesAreThoseOfTheSchema) {
    write_sample(path, 1);
    open();
    EXPECT_EQ(text("/", "tartan_schema"), "block-sparse");
    EXPECT_EQ(text("/", "tartan_schema_version"), "1.3");
    EXPECT_EQ(text("/", "creator"), std::string("tartan ") + tartan_version());
    EXPECT_EQ(text("/layouts/pattern", "kind"), "layout");
    EXPECT_EQ(text("/layouts/pattern", "metadata"), "{\"by\":\"test\"}");
    EXPECT_EQ(text("/tensors/a", "kind"), "bsr");
    EXPECT_EQ(text("/tensors/a", "layout"), "/layouts/pattern");
    const std::string implicit = text("/tensors/c", "layout");
    EXPECT_EQ(implicit, "/layouts/" + text("/tensors/c", "layout_identity"));
    EXPECT_EQ(text("/tensors/a", "dtype"), "float32");
    EXPECT_EQ(text("/tensors/a", "block_order"), "C");
    EXPECT_EQ(text("/tensors/b", "dtype"), "bfloat16");
    EXPECT_EQ(text("/tensors/b", "block_order"), "F");
    EXPECT_EQ(text("/tensors/b", "metadata"), "{\"step\":1}");
    EXPECT_EQ(text("/tensors/b", "binsparse"), "(none)") << "Binsparse has no 16-bit types";
    EXPECT_NE(text("/tensors/a", "binsparse"), "(none)");
    EXPECT_NE(text("/layouts/pattern", "binsparse"), "(none)");
    EXPECT_EQ(text("/tensors/a", "layout_identity"), text("/layouts/pattern", "layout_identity"));
    EXPECT_GT(H5Aexists_by_name(file, implicit.c_str(), "implicit", H5P_DEFAULT), 0);
    EXPECT_EQ(H5Aexists_by_name(file, "/layouts/pattern", "implicit", H5P_DEFAULT), 0);
}

TEST_F(Hdf5Write, IndexListsAreSharedByHardLinks) {
    Layout layout = random_layout({40, 40, 2, 2, 1}, 0.8, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, 0, 1);
    File out = new_file();
    for (const char *name : {"one", "two"}) {
        ASSERT_OK(tartan_file_put_layout(out.get(), name, layout.get(), nullptr));
        ASSERT_OK(tartan_file_put_matrix(out.get(), name, matrix.get(), nullptr, nullptr));
    }
    ASSERT_OK(tartan_file_save(out.get(), path.c_str(), 0));
    open();
    for (const char *list : {"pointers_to_1", "indices_1"})
        for (const char *place : {"/layouts/two/", "/tensors/one/", "/tensors/two/"})
            EXPECT_EQ(address((std::string(place) + list).c_str()),
                      address((std::string("/layouts/one/") + list).c_str()));
}

TEST_F(Hdf5Write, ValuesIsAViewOfBlocks) {
    for (int32_t keep : {0, 1}) {
        write_sample(path, 1, keep);
        open();
        for (const char *tensor : {"/tensors/a/", "/tensors/b/", "/tensors/c/"}) {
            const auto blocks = data<double>((std::string(tensor) + "blocks").c_str(), H5T_NATIVE_DOUBLE);
            EXPECT_EQ(data<double>((std::string(tensor) + "values").c_str(), H5T_NATIVE_DOUBLE), blocks);
            EXPECT_FALSE(blocks.empty());
        }
        H5Fclose(file);
    }
    file = -1;
}

TEST_F(Hdf5Write, SixteenBitTypesReadAsNumbers) {
    Layout layout = random_layout({40, 40, 2, 2, 1}, 1, 1);
    File out = new_file();
    auto quarter = [](int64_t i) { return ((double)(i % 61) - 7) / 4; };
    Matrix half = make_matrix(layout.get(), TARTAN_F16, 0, quarter),
           brain = make_matrix(layout.get(), TARTAN_BF16, 0, quarter);
    ASSERT_OK(tartan_file_put_matrix(out.get(), "half", half.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_matrix(out.get(), "brain", brain.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(out.get(), path.c_str(), 0));
    open();
    std::vector<double> expected(1600);
    for (int i = 0; i < 1600; i++) expected[(size_t)i] = quarter(i);
    EXPECT_EQ(data<double>("/tensors/half/blocks", H5T_NATIVE_DOUBLE), expected);
    EXPECT_EQ(data<double>("/tensors/brain/blocks", H5T_NATIVE_DOUBLE), expected);
}

// A small matrix is one dataset with few attributes; an array is one, too.
TEST_F(Hdf5Write, SmallMatricesAndArraysAreDatasets) {
    write_sample(path, 1);
    open();
    EXPECT_EQ(text("/tensors/d", "kind"), "bsr");
    EXPECT_EQ(text("/tensors/d", "layout"), "/layouts/" + text("/tensors/d", "layout_identity"));
    EXPECT_EQ(text("/tensors/d", "block_order"), "F");
    EXPECT_EQ(text("/tensors/d", "metadata"), "[1]");
    EXPECT_EQ(data<double>("/tensors/d", H5T_NATIVE_DOUBLE).size() % 16, 0u);
    EXPECT_EQ(text("/tensors/e", "kind"), "array");
    EXPECT_EQ(text("/tensors/e", "metadata"), "[2]");
    EXPECT_EQ(data<double>("/tensors/e", H5T_NATIVE_DOUBLE),
              data<double>("/tensors/a/gates", H5T_NATIVE_DOUBLE));
}

TEST_F(Hdf5Write, EmptyMatrixHasDatasetsOfNoElements) {
    Layout layout = random_layout({8, 8, 4, 4, 1}, 0, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F64, 0, 1);
    File out = new_file();
    ASSERT_OK(tartan_file_put_matrix(out.get(), "m", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_save(out.get(), path.c_str(), 1));
    open();
    EXPECT_TRUE(data<double>("/tensors/m/blocks", H5T_NATIVE_DOUBLE).empty());
    EXPECT_TRUE(data<double>("/tensors/m/values", H5T_NATIVE_DOUBLE).empty());
    EXPECT_TRUE(data<int>("/tensors/m/indices_1", H5T_NATIVE_INT).empty());
    EXPECT_EQ(data<int>("/tensors/m/pointers_to_1", H5T_NATIVE_INT), (std::vector<int>{0, 0, 0}));
}

TEST_F(Hdf5Write, ChunksAreAMebibyteWithChecksums) {
    Layout layout = random_layout({1024, 1024, 64, 64, 1}, 1, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F64, 0, 1);
    File out = new_file();
    ASSERT_OK(tartan_file_put_matrix(out.get(), "m", matrix.get(), nullptr, nullptr));
    for (int32_t keep : {0, 1}) {
        ASSERT_OK(tartan_file_save(out.get(), path.c_str(), keep));
        open();
        hid_t dataset = H5Dopen2(file, "/tensors/m/blocks", H5P_DEFAULT),
              plist = H5Dget_create_plist(dataset);
        hsize_t chunk[3];
        EXPECT_EQ(H5Pget_chunk(plist, 3, chunk), 3);
        EXPECT_EQ(chunk[0], 32u); // of 32 KiB each
        EXPECT_EQ(H5Pget_nfilters(plist), keep ? 3 : 1);
        H5Pclose(plist), H5Dclose(dataset), H5Fclose(file);
    }
    file = -1;
}

} // namespace
