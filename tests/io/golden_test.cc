// SPDX-License-Identifier: Apache-2.0
// Files that released versions wrote are read with equal values for ever; files that once broke something are
// refused for ever.
#include <cstdlib>

#include "io_support.h"

using namespace tartan_test;

namespace {

const tartan_dtype dtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16};

// Exact in every dtype.
double golden_value(int64_t i) {
    return (double)(i % 61) / 4 - 7;
}

Layout golden_layout(int64_t heads) {
    const tartan_shape shape = {11, 14, 4, 3, heads}; // a grid of 3 x 5, ragged both ways
    std::vector<uint8_t> mask((size_t)(heads * 15));
    for (size_t i = 0; i < mask.size(); i++) mask[i] = i * i % 7 < 3;
    return from_mask(shape, mask);
}

struct Golden {
    Layout one = golden_layout(1), two = golden_layout(2),
           none = from_mask({5, 5, 2, 2, 1}, std::vector<uint8_t>(9));
    std::vector<std::pair<std::string, Matrix>> matrices;
    std::vector<double> gates;
    Golden() {
        for (tartan_dtype dtype : dtypes)
            for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR}) {
                const std::string name =
                    std::string(tartan_dtype_name(dtype)) + (order == TARTAN_ROW_MAJOR ? "-C" : "-F");
                matrices.emplace_back(name, make_matrix(one.get(), dtype, order, golden_value));
                matrices.emplace_back(name + "-heads", make_matrix(two.get(), dtype, order, golden_value));
            }
        matrices.emplace_back("empty", make_matrix(none.get(), TARTAN_F64, TARTAN_ROW_MAJOR, golden_value));
        for (int64_t i = 0; i < tartan_layout_blocks(one.get()); i++) gates.push_back((double)i / 8);
    }
    // TARTAN_WRITE_GOLDEN=<folder> makes the files of a new schema version; those of old ones are never rewritten.
    void write(const std::string &folder) {
        File file = new_file();
        const int64_t n = (int64_t)gates.size();
        tartan_array array;
        ASSERT_OK(tartan_array_init(gates.data(), TARTAN_F64, 1, &n, nullptr, &array));
        ASSERT_OK(tartan_file_put_layout(file.get(), "one", one.get(), "{\"golden\":true}"));
        for (const auto &[name, matrix] : matrices)
            ASSERT_OK(tartan_file_put_matrix(file.get(), name.c_str(), matrix.get(),
                                             name == "float64-C" ? &array : nullptr, nullptr));
        ASSERT_OK(tartan_file_save(file.get(), (folder + "/plain.h5").c_str(), TARTAN_KEEP_PLAIN));
        ASSERT_OK(tartan_file_save(file.get(), (folder + "/compressed.h5").c_str(), TARTAN_KEEP_COMPRESSED));
    }
};

TEST(Golden, FilesOfVersionOneKeepTheirValues) {
    Golden golden;
    if (const char *folder = std::getenv("TARTAN_WRITE_GOLDEN")) golden.write(folder);
    for (const char *name : {"plain.h5", "compressed.h5"}) {
        const std::string path = std::string(TARTAN_DATA "/golden/v1/") + name;
        ASSERT_OK(tartan_file_verify(path.c_str(), nullptr));
        File file = open_file(path);
        EXPECT_EQ(tartan_file_sealed(file.get()), 1);
        EXPECT_EQ(tartan_file_count(file.get()), 1 + (int64_t)golden.matrices.size());
        for (const auto &[matrix_name, matrix] : golden.matrices)
            expect_same(matrix.get(), get_matrix(file.get(), matrix_name).get());
        std::vector<double> gates(golden.gates.size());
        ASSERT_OK(tartan_file_get_gates(file.get(), "float64-C", gates.data(), (int64_t)gates.size()));
        EXPECT_EQ(gates, golden.gates);
        char *text = nullptr;
        ASSERT_OK(tartan_file_get_metadata(file.get(), TARTAN_KIND_LAYOUT, "one", &text));
        EXPECT_STREQ(text, "{\"golden\":true}");
        tartan_text_free(text);
        // The identity is part of the format.
        EXPECT_STREQ(tartan_file_layout_identity(file.get(), 0), tartan_layout_identity(golden.one.get()));
    }
}

TEST(Golden, CorruptFilesAreRefused) {
    int count = 0;
    for (const auto &entry : std::filesystem::directory_iterator(TARTAN_DATA "/corrupt")) {
        if (entry.path().extension() != ".h5") continue;
        count++;
        const tartan_status status = tartan_file_verify(entry.path().c_str(), nullptr);
        EXPECT_TRUE(status == TARTAN_ERR_FORMAT || status == TARTAN_ERR_VERSION)
            << entry.path() << " " << status;
    }
    EXPECT_GE(count, 8);
}

} // namespace
