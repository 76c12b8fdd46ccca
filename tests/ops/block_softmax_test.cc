// SPDX-License-Identifier: Apache-2.0
// Softmax of block-sparse scores and its gradient: special values, empty and dynamic layouts, options that need others.
#include "block_softmax_support.h"

namespace {

using namespace tartan_test;

// A copy, so that the matrix may be overwritten.
Matrix copy_of(const Matrix &m) {
    tartan_matrix *raw = nullptr;
    EXPECT_OK(tartan_matrix_copy(cpu(), m.get(), &raw));
    return Matrix(raw);
}

void run_and_check(Softmax &p, tartan_context *context) {
    ASSERT_OK(p.forward(context));
    p.check_forward(p.x.get());
    EXPECT_TRUE(marks_intact(p.lse));
    ASSERT_OK(p.backward(context));
    p.check_backward(p.dy.get());
}

Softmax plain(const tartan_shape &shape, double density, int32_t dtype, int32_t order = TARTAN_ROW_MAJOR,
              double size = 2) {
    std::mt19937_64 random(1);
    Softmax p;
    p.layout = random_layout(shape, density, 1);
    p.make(random, dtype, order, size);
    return p;
}

TEST(BlockSoftmax, HiddenElementsAreZeroWhateverTheirScore) {
    const Context own = open_context(2);
    for (int32_t dtype : kDtypes)
        for (double bad : {(double)NAN, (double)INFINITY, -(double)INFINITY, 6e4}) {
            Softmax p = plain({32, 96, 16, 16, 1}, 1, dtype);
            p.causal = true;
            for (int64_t id = 0; id < p.layout->blocks; id++)
                for (int64_t i = 0; i < 16; i++)
                    for (int64_t j = 0; j < 16; j++)
                        if (!p.sees(id, i, j))
                            tartan_i_store(tartan_i_block_at(p.x.get(), id), dtype, i * 16 + j, bad);
            run_and_check(p, own.get());
        }
}

TEST(BlockSoftmax, NanAndInfinityStayInTheVisiblePartOfTheirRows) {
    const Context own = open_context(2);
    for (int32_t dtype : kDtypes)
        for (double bad : {(double)NAN, (double)INFINITY}) {
            Softmax p = plain({32, 32, 16, 16, 1}, 1, dtype);
            p.causal = true;
            ASSERT_OK(p.forward(own.get()));
            const Matrix good = copy_of(p.y);
            tartan_i_store(tartan_i_block_at(p.x.get(), 2), dtype, 4 * 16 + 3, bad); // row 20, column 3
            ASSERT_OK(p.forward(own.get()));
            EXPECT_TRUE(std::isnan(p.lse.get(20)));
            p.each_row([&](int64_t h, int64_t row) {
                p.each(h, row, [&](int64_t id, int64_t i, int64_t j) {
                    const double got = entry(p.y.get(), id, i, j);
                    if (row != 20)
                        EXPECT_EQ(entry(good.get(), id, i, j), got);
                    else if (p.sees(id, i, j))
                        EXPECT_TRUE(std::isnan(got));
                    else
                        EXPECT_EQ(0, got);
                });
            });
        }
}

TEST(BlockSoftmax, RowsThatSeeNothing) {
    const Context own = open_context(2);
    for (int32_t dtype : kDtypes) {
        Softmax p = plain({48, 32, 16, 16, 1}, 0, dtype);
        std::mt19937_64 random(1);
        p.layout = from_mask({48, 32, 16, 16, 1}, {0, 0, 0, 1, 1, 1}); // the first row of blocks is empty
        p.make(random, dtype);
        p.causal = true;
        p.query_offset = -24;            // and rows before 24 see no column
        for (int64_t j = 0; j < 16; j++) // all scores of row 47 are -infinity
            for (int64_t id : {1, 2})
                tartan_i_store(tartan_i_block_at(p.x.get(), id), dtype, 15 * 16 + j, -INFINITY);
        ASSERT_OK(p.forward(own.get()));
        for (int64_t row : {0, 23, 24, 47}) {
            EXPECT_EQ(-INFINITY, p.lse.get(row)) << row;
            p.each(0, row,
                   [&](int64_t id, int64_t i, int64_t j) { EXPECT_EQ(0, entry(p.y.get(), id, i, j)); });
        }
        EXPECT_TRUE(std::isfinite(p.lse.get(40)));
        ASSERT_OK(p.backward(own.get()));
        p.check_backward(p.dy.get());
    }
}

TEST(BlockSoftmax, LargeScores) {
    const Context own = open_context(2);
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16})
        for (double scale : {1.0, -1.0}) {
            Softmax p = plain({32, 600, 16, 16, 1}, 1, dtype, TARTAN_ROW_MAJOR, 1e4);
            p.scale = scale;
            run_and_check(p, own.get());
        }
}

TEST(BlockSoftmax, EmptyThings) {
    const Context own = open_context(2);
    for (const tartan_shape &shape : std::vector<tartan_shape>{
             {0, 16, 8, 8, 1}, {16, 0, 8, 8, 1}, {0, 0, 8, 8, 1}, {1, 1, 8, 8, 1}, {16, 1, 8, 256, 2}})
        for (double density : {0.0, 1.0}) {
            Softmax p = plain(shape, density, TARTAN_F32);
            run_and_check(p, own.get());
        }
}

TEST(BlockSoftmax, DynamicLayouts) {
    const Context own = open_context(2);
    Softmax p = plain({40, 50, 16, 8, 2}, 0.5, TARTAN_F32);
    p.causal = true;
    run_and_check(p, own.get());
    const tartan_layout *fixed = p.layout.get();
    std::vector<uint8_t> mask((size_t)(2 * fixed->grid_rows * fixed->grid_cols));
    ASSERT_OK(tartan_layout_get_mask(fixed, mask.data(), (int64_t)mask.size()));
    const tartan_array bytes = [&] {
        tartan_array a = {};
        const int64_t shape[] = {2, fixed->grid_rows, fixed->grid_cols};
        EXPECT_OK(tartan_array_init(mask.data(), TARTAN_U8, 3, shape, nullptr, &a));
        return a;
    }();
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_from_device_mask(own.get(), &fixed->shape, &bytes, fixed->blocks + 3, &raw));
    const Layout dynamic(raw);
    std::vector<std::vector<float>> values;
    const auto matrix = [&](const Matrix &from) {
        const tartan_shape &f = fixed->shape;
        values.emplace_back((size_t)((fixed->blocks + 3) * f.block_rows * f.block_cols), 0.0f);
        if (from != nullptr) std::memcpy(values.back().data(), from->values, bytes_of(from).size());
        tartan_array a = {};
        const int64_t lengths[] = {fixed->blocks + 3, f.block_rows, f.block_cols};
        EXPECT_OK(tartan_array_init(values.back().data(), TARTAN_F32, 3, lengths, nullptr, &a));
        tartan_matrix *made = nullptr;
        EXPECT_OK(tartan_matrix_wrap(dynamic.get(), &a, nullptr, nullptr, &made));
        return Matrix(made);
    };
    const Matrix x = matrix(p.x), y = matrix(nullptr), dy = matrix(p.dy), dx = matrix(nullptr);
    ASSERT_OK(tartan_block_softmax(own.get(), x.get(), p.options().c_str(), nullptr, y.get(), &p.lse.array));
    ASSERT_OK(tartan_block_softmax_gradient(own.get(), y.get(), dy.get(), p.scale, dx.get()));
    p.each_row([&](int64_t h, int64_t row) {
        p.each(h, row, [&](int64_t id, int64_t i, int64_t j) {
            ASSERT_EQ(entry(p.y.get(), id, i, j), entry(y.get(), id, i, j));
            ASSERT_EQ(entry(p.dx.get(), id, i, j), entry(dx.get(), id, i, j));
        });
    });
    EXPECT_FAILS(LAYOUT, "y has another layout than x (dynamic)",
                 tartan_block_softmax(own.get(), p.x.get(), nullptr, nullptr, y.get(), nullptr));
}

// What no entry of the schema says.
TEST(BlockSoftmax, OptionsThatNeedOthers) {
    std::mt19937_64 random(1);
    Softmax p;
    p.layout = random_layout({32, 48, 16, 16, 2}, 1, 1);
    p.make(random, TARTAN_F32);
    const std::vector<char> y = bytes_of(p.y);
    const auto forward = [&](const char *options) {
        return tartan_block_softmax(cpu(), p.x.get(), options, p.mask.get(), p.y.get(), &p.lse.array);
    };
    EXPECT_FAILS(ARGUMENT, "scale is 1e+300, expected a number that is finite in float32",
                 forward("scale=1e300"));
    EXPECT_FAILS(ARGUMENT, "options has causal_from, which needs causal=1", forward("causal_from=3"));
    EXPECT_FAILS(ARGUMENT, "options has query_offset, which needs causal=1", forward("query_offset=3"));
    EXPECT_EQ(y, bytes_of(p.y)) << "a refused call wrote";
}

} // namespace
