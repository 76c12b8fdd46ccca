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
    // What schema 1.2 added: arrays, a matrix too large for one dataset, and objects in an order that names do not have.
    Matrix large = make_matrix(from_mask({90, 70, 16, 16, 1}, std::vector<uint8_t>(30, 1)).get(), TARTAN_F64,
                               TARTAN_COL_MAJOR, golden_value);
    std::vector<float> bias = {0.5f, -1, 2, 0, 3.25f, 7};
    int64_t steps = 1234567890123;
    const std::string long_text = "{\"text\":\"" + std::string(40000, 'x') + "\"}";
    void put_news(tartan_file *file) {
        const int64_t shape[] = {2, 3};
        tartan_array array;
        ASSERT_OK(tartan_array_init(bias.data(), TARTAN_F32, 2, shape, nullptr, &array));
        ASSERT_OK(tartan_file_put_array(file, "a bias", &array, 0, "{\"layer\":1}"));
        ASSERT_OK(tartan_array_init(&steps, TARTAN_I64, 0, nullptr, nullptr, &array));
        ASSERT_OK(tartan_file_put_array(file, "a/steps", &array, 0, nullptr));
        ASSERT_OK(tartan_file_put_matrix(file, "a large one", large.get(), nullptr, long_text.c_str()));
    }
    void expect_news(tartan_file *file) {
        expect_same(large.get(), get_matrix(file, "a large one").get());
        const Bytes bytes = get_array(file, "a bias");
        ASSERT_EQ(bytes.size(), bias.size() * sizeof bias[0]);
        EXPECT_EQ(memcmp(bytes.data(), bias.data(), bytes.size()), 0);
        EXPECT_EQ(*reinterpret_cast<const int64_t *>(get_array(file, "a/steps").data()), steps);
        char *text = nullptr;
        ASSERT_OK(tartan_file_get_metadata(file, TARTAN_KIND_MATRIX, "a large one", &text));
        EXPECT_EQ(text, long_text);
        tartan_text_free(text);
        const int64_t first = tartan_file_count(file) - 3;
        const char *const names[] = {"a bias", "a/steps", "a large one"};
        for (int64_t i = 0; i < 3; i++) EXPECT_STREQ(tartan_file_name(file, first + i), names[i]);
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
        const std::string grown = folder + "/grown.h5";
        ASSERT_OK(tartan_file_save(file.get(), grown.c_str(), TARTAN_KEEP_PLAIN));
        put_news(file.get());
        ASSERT_OK(tartan_file_save(file.get(), (folder + "/plain.h5").c_str(), TARTAN_KEEP_PLAIN));
        ASSERT_OK(tartan_file_save(file.get(), (folder + "/compressed.h5").c_str(), TARTAN_KEEP_COMPRESSED));
        File news = new_file();
        put_news(news.get());
        ASSERT_OK(tartan_file_append(news.get(), grown.c_str(), TARTAN_KEEP_PLAIN));
    }
    void expect_all(tartan_file *file) {
        EXPECT_EQ(tartan_file_sealed(file), 1);
        for (const auto &[name, matrix] : matrices) expect_same(matrix.get(), get_matrix(file, name).get());
        std::vector<double> found(gates.size());
        ASSERT_OK(tartan_file_get_gates(file, "float64-C", found.data(), (int64_t)found.size()));
        EXPECT_EQ(found, gates);
        char *text = nullptr;
        ASSERT_OK(tartan_file_get_metadata(file, TARTAN_KIND_LAYOUT, "one", &text));
        EXPECT_STREQ(text, "{\"golden\":true}");
        tartan_text_free(text);
        // The identity is part of the format.
        EXPECT_STREQ(tartan_file_layout_identity(file, 0), tartan_layout_identity(one.get()));
    }
};

TEST(Golden, FilesOfOldVersionsKeepTheirValues) {
    Golden golden;
    if (const char *folder = std::getenv("TARTAN_WRITE_GOLDEN")) golden.write(folder);
    for (const std::string name :
         {"v1/plain", "v1/compressed", "v1.2/plain", "v1.2/compressed", "v1.2/grown"}) {
        SCOPED_TRACE(name);
        const bool has_news = name.compare(0, 3, "v1/") != 0;
        const std::string path = std::string(TARTAN_DATA "/golden/") + name + ".h5";
        ASSERT_OK(tartan_file_verify(path.c_str(), nullptr));
        File file = open_file(path);
        EXPECT_EQ(tartan_file_count(file.get()), 1 + (int64_t)golden.matrices.size() + (has_news ? 3 : 0));
        golden.expect_all(file.get());
        if (has_news) golden.expect_news(file.get());
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
