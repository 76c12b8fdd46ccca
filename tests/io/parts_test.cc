// SPDX-License-Identifier: Apache-2.0
// Arrays, and parts of arrays and matrices.
#include "io_support.h"

using namespace tartan_test;

namespace {

class Parts : public testing::Test {
  protected:
    Folder folder;
    File file = new_file();
    std::string path = folder / "p.h5";

    File save(int32_t keep) {
        EXPECT_OK(tartan_file_save(file.get(), path.c_str(), keep));
        return open_file(path);
    }
};

tartan_array describe(void *data, int32_t dtype, const std::vector<int64_t> &shape,
                      const std::vector<int64_t> &strides = {}) {
    tartan_array array;
    EXPECT_OK(tartan_array_init(data, dtype, (int32_t)shape.size(), shape.data(),
                                strides.empty() ? nullptr : strides.data(), &array));
    return array;
}

TEST_F(Parts, ArraysOfEveryDtypeAndShapeComeBack) {
    const std::vector<std::vector<int64_t>> shapes = {
        {}, {0}, {5}, {3, 4}, {2, 0, 3}, {700, 300}, {2, 3, 4, 5}, {1, 2, 1, 2, 1, 2, 1, 2}, {3, 1500000}};
    std::mt19937 random(1);
    std::vector<std::pair<std::string, Bytes>> wanted;
    std::vector<int64_t> room(4500000);
    for (int64_t &word : room) word = (int64_t)random() << 32 | random();
    for (int32_t dtype = TARTAN_F64; dtype <= TARTAN_I64; dtype++)
        for (size_t i = 0; i < shapes.size(); i++) {
            int64_t count = tartan_dtype_bytes(dtype);
            for (int64_t n : shapes[i]) count *= n;
            if (count > 9000000) continue;
            tartan_array array = describe(room.data() + dtype, dtype, shapes[i]);
            const std::string name = std::string(tartan_dtype_name(dtype)) + "-" + std::to_string(i);
            ASSERT_OK(
                tartan_file_put_array(file.get(), name.c_str(), &array, 0, i % 2 == 0 ? "{}" : nullptr));
            const auto *bytes = reinterpret_cast<const unsigned char *>(room.data() + dtype);
            wanted.emplace_back(name, Bytes(bytes, bytes + count));
        }
    for (int32_t keep : {TARTAN_KEEP_PLAIN, TARTAN_KEEP_COMPRESSED}) {
        File back = save(keep);
        for (tartan_file *f : {file.get(), back.get()})
            for (const auto &[name, bytes] : wanted) ASSERT_EQ(get_array(f, name), bytes) << name;
        EXPECT_OK(tartan_file_verify(path.c_str(), nullptr));
    }
}

// The same indices have the same elements, whatever the strides on either side.
TEST_F(Parts, StridesOfArraysDoNotMatter) {
    std::vector<float> data(7 * 5 * 3 * 2), out(7 * 5 * 3 * 3, -1);
    for (size_t i = 0; i < data.size(); i++) data[i] = (float)i;
    const std::vector<int64_t> shape = {7, 5, 3}, strides = {2, 14, 70}, other = {15, -3, 1};
    tartan_array array = describe(data.data(), TARTAN_F32, shape, strides);
    ASSERT_OK(tartan_file_put_array(file.get(), "x", &array, 0, nullptr));
    File back = save(TARTAN_KEEP_PLAIN);
    for (tartan_file *f : {file.get(), back.get()}) {
        tartan_array to = describe(out.data() + 12, TARTAN_F32, {4, 5, 3}, other); // rows 2 to 5
        ASSERT_OK(tartan_file_get_array(f, "x", 2, &to));
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < 5; j++)
                for (int64_t k = 0; k < 3; k++)
                    ASSERT_EQ(out[(size_t)(12 + i * 15 - j * 3 + k)],
                              data[(size_t)((i + 2) * 2 + j * 14 + k * 70)]);
    }
}

// R has no numbers but doubles and integers of 32 bits.
TEST_F(Parts, ArraysAreConverted) {
    std::vector<double> data = {-3, 0, 70000, 2, 1.5, 7}, out(6);
    tartan_array whole = describe(data.data(), TARTAN_F64, {2, 2}),
                 all = describe(data.data(), TARTAN_F64, {6});
    ASSERT_OK(tartan_file_put_array(file.get(), "i32", &whole, TARTAN_I32, nullptr));
    ASSERT_OK(tartan_file_put_array(file.get(), "bf16", &all, TARTAN_BF16, nullptr));
    File back = save(TARTAN_KEEP_PLAIN);
    for (tartan_file *f : {file.get(), back.get()}) {
        const Bytes bytes = get_array(f, "i32");
        EXPECT_EQ(std::vector<int32_t>((const int32_t *)bytes.data(), (const int32_t *)bytes.data() + 4),
                  (std::vector<int32_t>{-3, 0, 70000, 2}));
        EXPECT_EQ(get_array(f, "bf16").size(), 12u);
        tartan_array to = describe(out.data(), TARTAN_F64, {2, 2});
        ASSERT_OK(tartan_file_get_array(f, "i32", 0, &to));
        EXPECT_EQ(out[2], 70000);
        to = describe(out.data(), TARTAN_F64, {3});
        ASSERT_OK(tartan_file_get_array(f, "bf16", 3, &to));
        EXPECT_EQ(std::vector<double>(out.begin(), out.begin() + 3), (std::vector<double>{2, 1.5, 7}));
    }
}

TEST_F(Parts, NumbersAreReadAsVectorsOfOne) {
    double value = 3, out = 0;
    tartan_array scalar = describe(&value, TARTAN_F64, {}), one = describe(&out, TARTAN_F64, {1}),
                 two = describe(&out, TARTAN_F64, {1, 1});
    ASSERT_OK(tartan_file_put_array(file.get(), "x", &scalar, 0, nullptr));
    File back = save(TARTAN_KEEP_PLAIN);
    for (tartan_file *f : {file.get(), back.get()}) {
        out = 0;
        ASSERT_OK(tartan_file_get_array(f, "x", 0, &one));
        EXPECT_EQ(out, 3);
        EXPECT_FAILS(SHAPE, "array has shape [1, 1]", tartan_file_get_array(f, "x", 0, &two));
    }
}

TEST_F(Parts, ArraysAndMatricesShareTheirNames) {
    Layout layout = random_layout({8, 8, 4, 4, 1}, 1, 1);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, 0, 1);
    double value = 3;
    tartan_array scalar = describe(&value, TARTAN_F64, {});
    ASSERT_OK(tartan_file_put_layout(file.get(), "x", layout.get(), nullptr));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "x", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_array(file.get(), "x", &scalar, 0, nullptr));
    EXPECT_EQ(tartan_file_count(file.get()), 2);
    tartan_matrix *out = nullptr;
    EXPECT_FAILS(NOT_FOUND, "no matrix \"x\"", tartan_file_get_matrix(file.get(), "x", &out));
    EXPECT_EQ(get_array(file.get(), "x").size(), 8u);
    ASSERT_OK(tartan_file_remove(file.get(), TARTAN_KIND_ARRAY, "x"));
    EXPECT_EQ(tartan_file_count(file.get()), 1);
}

TEST_F(Parts, ArrayRefusals) {
    std::vector<double> data(12);
    tartan_array array = describe(data.data(), TARTAN_F64, {3, 4}), bad = array;
    ASSERT_OK(tartan_file_put_array(file.get(), "x", &array, 0, nullptr));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_put_array(nullptr, "x", &array, 0, nullptr));
    EXPECT_FAILS(HANDLE, "array is NULL", tartan_file_put_array(file.get(), "x", nullptr, 0, nullptr));
    EXPECT_FAILS(ARGUMENT, "is empty", tartan_file_put_array(file.get(), "", &array, 0, nullptr));
    EXPECT_FAILS(ARGUMENT, "expected JSON", tartan_file_put_array(file.get(), "x", &array, 0, "{"));
    bad.dtype = 99;
    EXPECT_FAILS(DTYPE, "array", tartan_file_put_array(file.get(), "x", &bad, 0, nullptr));
    EXPECT_FAILS(DTYPE, "array is of float64, which cannot be stored as int64",
                 tartan_file_put_array(file.get(), "y", &array, TARTAN_I64, nullptr));
    EXPECT_FAILS(DTYPE, "an unknown dtype", tartan_file_put_array(file.get(), "y", &array, 99, nullptr));
    for (double value : {0.5, 3e9, -3e9, std::nan("")}) {
        data[11] = value;
        EXPECT_FAILS(ARGUMENT, "int32 cannot represent",
                     tartan_file_put_array(file.get(), "y", &array, TARTAN_I32, nullptr));
    }
    File back = save(TARTAN_KEEP_PLAIN);
    for (tartan_file *f : {file.get(), back.get()}) {
        EXPECT_FAILS(NOT_FOUND, "no array \"y\"", tartan_file_get_array(f, "y", 0, &array));
        EXPECT_FAILS(SHAPE, "the part begins at 1 and has 3, but there are 3",
                     tartan_file_get_array(f, "x", 1, &array));
        EXPECT_FAILS(SHAPE, "the part begins at -1", tartan_file_get_array(f, "x", -1, &array));
        tartan_array narrow = describe(data.data(), TARTAN_F64, {3, 3}),
                     single = describe(data.data(), TARTAN_I32, {3, 4});
        EXPECT_FAILS(SHAPE, "array has shape [3, 3], but array \"x\" has [3, 4]",
                     tartan_file_get_array(f, "x", 0, &narrow));
        EXPECT_FAILS(DTYPE, "array is of int32", tartan_file_get_array(f, "x", 0, &single));
    }
    EXPECT_FAILS(HANDLE, "array is NULL", tartan_file_get_array(file.get(), "x", 0, nullptr));
}

// Each range of block rows, and of blocks, is what it is in the whole matrix.
TEST_F(Parts, RangesOfMatrices) {
    for (int32_t keep : {TARTAN_KEEP_PLAIN, TARTAN_KEEP_COMPRESSED})
        for (int32_t order : {TARTAN_ROW_MAJOR, TARTAN_COL_MAJOR})
            for (int64_t size : {30, 1100}) { // one chunk, and some
                const int64_t step = size == 30 ? 4 : 50;
                Layout layout = random_layout({size, size, step, step + 1, 1}, 0.7, 3);
                Matrix matrix = random_matrix(layout.get(), TARTAN_F32, order, 4);
                ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
                File back = save(keep);
                for (tartan_file *f : {file.get(), back.get()})
                    for (int64_t begin = 0; begin < size; begin += 3 * step)
                        for (int64_t end = begin + step; end < size + step; end += 5 * step) {
                            const int64_t stop = std::min(end, size);
                            tartan_matrix *part = nullptr;
                            ASSERT_OK(tartan_file_get_rows(f, "m", begin, stop, &part));
                            Matrix owner(part);
                            ASSERT_EQ(tartan_layout_rows(layout_of(part).get()), stop - begin);
                            ASSERT_OK(tartan_matrix_check(part, 1));
                            for (int64_t i = begin; i < stop; i += 7)
                                for (int64_t j = 0; j < size; j += 13) {
                                    double a = 0, b = 1;
                                    ASSERT_OK(tartan_matrix_entry(matrix.get(), 0, i, j, &a));
                                    ASSERT_OK(tartan_matrix_entry(part, 0, i - begin, j, &b));
                                    ASSERT_EQ(a, b) << i << " " << j;
                                }
                        }
                const tartan_array all = values_of(matrix.get());
                for (tartan_file *f : {file.get(), back.get()})
                    for (int64_t first = 0; first < all.shape[0]; first += 9) {
                        const int64_t count = std::min<int64_t>(all.shape[0] - first, 20);
                        std::vector<float> read((size_t)(count * step * (step + 1)));
                        tartan_array out = describe(read.data(), TARTAN_F32, {count, step, step + 1});
                        ASSERT_OK(tartan_file_get_blocks(f, "m", first, &out));
                        const auto *x = static_cast<const float *>(all.data);
                        for (int64_t i = 0; i < count; i++)
                            for (int64_t r = 0; r < step; r++)
                                for (int64_t c = 0; c <= step; c++)
                                    ASSERT_EQ(read[(size_t)((i * step + r) * (step + 1) + c)],
                                              x[(first + i) * all.strides[0] + r * all.strides[1] +
                                                c * all.strides[2]]);
                    }
            }
}

TEST_F(Parts, RangeRefusals) {
    Layout layout = random_layout({30, 30, 4, 4, 1}, 0.7, 3), heads = random_layout({8, 8, 4, 4, 2}, 1, 3);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, 0, 4),
           two = random_matrix(heads.get(), TARTAN_F32, 0, 4);
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_put_matrix(file.get(), "heads", two.get(), nullptr, nullptr));
    File back = save(TARTAN_KEEP_PLAIN);
    std::vector<float> room(30 * 16);
    for (tartan_file *f : {file.get(), back.get()}) {
        tartan_matrix *out = nullptr;
        for (auto [begin, end] : {std::pair<int64_t, int64_t>{-4, 4}, {2, 8}, {4, 6}, {8, 4}, {28, 32}})
            EXPECT_FAILS(SHAPE, "expected whole block rows (4 rows each) of 30 rows",
                         tartan_file_get_rows(f, "m", begin, end, &out));
        EXPECT_FAILS(UNSUPPORTED, "has 2 heads", tartan_file_get_rows(f, "heads", 0, 4, &out));
        EXPECT_FAILS(NOT_FOUND, "no matrix \"x\"", tartan_file_get_rows(f, "x", 0, 4, &out));
        EXPECT_FAILS(HANDLE, "out is NULL", tartan_file_get_rows(f, "m", 0, 4, nullptr));
        tartan_array few = describe(room.data(), TARTAN_F32, {2, 4, 4}),
                     flat = describe(room.data(), TARTAN_F32, {2, 16});
        const int64_t blocks = tartan_layout_blocks(layout.get());
        EXPECT_FAILS(SHAPE, "array has shape [2, 16], expected [count, 4, 4]",
                     tartan_file_get_blocks(f, "m", 0, &flat));
        EXPECT_FAILS(SHAPE, "the part begins at", tartan_file_get_blocks(f, "m", blocks - 1, &few));
        EXPECT_FAILS(SHAPE, "the part begins at -1", tartan_file_get_blocks(f, "m", -1, &few));
        few.dtype = TARTAN_I32;
        EXPECT_FAILS(DTYPE, "array has dtype 8, expected 1 .. 6", tartan_file_get_blocks(f, "m", 0, &few));
        EXPECT_FAILS(HANDLE, "array is NULL", tartan_file_get_blocks(f, "m", 0, nullptr));
    }
}

TEST_F(Parts, SurviveEveryFailedAllocation) {
    write_sample(path, 1);
    Layout layout = get_layout(open_file(path).get(), "pattern");
    std::vector<float> room(64);
    std::vector<double> numbers(200);
    const int64_t n = tartan_layout_blocks(layout.get());
    tartan_array some = describe(room.data(), TARTAN_F32, {2, 4, 4}),
                 all = describe(numbers.data(), TARTAN_F64, {n});
    auto run = [&] {
        tartan_file *f = nullptr;
        tartan_matrix *rows = nullptr;
        tartan_status status = tartan_file_open(path.c_str(), &f);
        if (status == TARTAN_OK) status = tartan_file_get_rows(f, "a", 4, 12, &rows);
        tartan_matrix_free(rows);
        if (status == TARTAN_OK) status = tartan_file_get_blocks(f, "a", 1, &some);
        if (status == TARTAN_OK) status = tartan_file_get_array(f, "e", 0, &all);
        if (status == TARTAN_OK) status = tartan_file_put_array(f, "f", &all, 0, "{}");
        if (status == TARTAN_OK) status = tartan_file_get_array(f, "f", 0, &all);
        tartan_file_free(f);
        return status;
    };
    BRUTAL(run(), );
}

// Of a matrix in memory and in a file, and shared with what else has it.
TEST_F(Parts, LayoutsOfMatricesAlone) {
    write_sample(path, 1);
    File back = open_file(path);
    tartan_layout *alone = nullptr;
    ASSERT_OK(tartan_file_get_matrix_layout(back.get(), "a", &alone));
    const Layout owner(alone);
    EXPECT_STREQ(tartan_layout_identity(alone),
                 tartan_layout_identity(layout_of(get_matrix(back.get(), "a").get()).get()));
    Layout layout = random_layout({30, 20, 4, 5, 2}, 0.5, 3);
    Matrix matrix = random_matrix(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, 4);
    ASSERT_OK(tartan_file_put_matrix(file.get(), "m", matrix.get(), nullptr, nullptr));
    ASSERT_OK(tartan_file_get_matrix_layout(file.get(), "m", &alone));
    EXPECT_EQ(alone, layout.get());
    tartan_layout_free(alone);
    for (tartan_file *f : {file.get(), back.get()}) {
        EXPECT_FAILS(NOT_FOUND, "none", tartan_file_get_matrix_layout(f, "none", &alone));
        EXPECT_EQ(alone, nullptr);
        EXPECT_FAILS(HANDLE, "out is NULL", tartan_file_get_matrix_layout(f, "a", nullptr));
    }
    EXPECT_FAILS(NOT_FOUND, "pattern", tartan_file_get_matrix_layout(back.get(), "pattern", &alone));
    EXPECT_FAILS(HANDLE, "file is NULL", tartan_file_get_matrix_layout(nullptr, "a", &alone));
    auto read = [&] {
        tartan_file *f = nullptr;
        tartan_status status = tartan_file_open(path.c_str(), &f);
        if (status == TARTAN_OK) status = tartan_file_get_matrix_layout(f, "a", &alone);
        tartan_file_free(f);
        return status;
    };
    BRUTAL(read(), tartan_layout_free(alone));
}

} // namespace
