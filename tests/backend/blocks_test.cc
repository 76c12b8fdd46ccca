// SPDX-License-Identifier: Apache-2.0
// Matrices made of the blocks of others, and norms of blocks, on every backend: the bits of the CPU, of each dtype,
// block order and shape, ragged ones among them. What the CPU does is tested against plain loops in tests/matrix.
#include "matrices.h"

#include <numeric>

namespace {

using namespace tartan_test;

class Blocks : public OnMatrices {
  protected:
    // Does the same here and there, and compares the bits, padding among them.
    using Make = std::function<tartan_status(tartan_context *, const tartan_matrix *, tartan_matrix **)>;
    void compare(const Matrix &matrix, const Make &make) {
        tartan_matrix *raw = nullptr;
        ASSERT_OK(make(cpu(), matrix.get(), &raw));
        const Matrix want(raw);
        const Matrix source = placed(context.get(), matrix);
        ASSERT_OK(make(context.get(), source.get(), &raw));
        const Matrix there(raw);
        EXPECT_STREQ(tartan_matrix_device(source.get()), tartan_matrix_device(raw));
        ASSERT_EQ(want->dtype, there->dtype);
        ASSERT_EQ(want->block_order, there->block_order);
        ASSERT_EQ(1, tartan_layout_equal(want->layout, there->layout));
        EXPECT_EQ(bits_of(want.get()), bits_of(there.get()));
        EXPECT_TRUE(raw->layout == matrix->layout ||
                    want->layout != matrix->layout); // shared where it can be
    }
    std::vector<int64_t> order(int64_t n, bool ragged) { // a ragged last one stays in place
        std::vector<int64_t> all((size_t)n);
        std::iota(all.begin(), all.end(), 0);
        if (n > 0) std::shuffle(all.begin(), all.end() - (ragged ? 1 : 0), random);
        return all;
    }
};
INSTANTIATE_TEST_SUITE_P(Each, Blocks, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(Blocks, AreCopiedAndCast) {
    for (int n = 0; n < rounds(360); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const Matrix a = some_matrix(n, shape_of(n / 36));
        const int32_t to = n / 6 % 6 == 0 ? 0 : kAll[n / 6 % 6], block_order = (int32_t)below(random, 2);
        compare(a, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
            return tartan_matrix_cast(c, m, to, block_order, out);
        });
        compare(a, tartan_matrix_copy);
        if (HasFailure()) return;
    }
}

// The ends of the ranges: what rounds up to infinity or down to zero, ties, and infinity itself.
TEST_P(Blocks, RoundAtTheEndsOfTheRanges) {
    const double numbers[] = {0.0,
                              -0.0,
                              65504,
                              65519.99,
                              65520,
                              448,
                              464,
                              464.01,
                              57344,
                              61439.9,
                              61440,
                              0x1p-24,
                              0x1p-25,
                              0x1p-9,
                              0x1p-10,
                              0x1.8p-10,
                              0x1p-16,
                              0x1p-17,
                              0x1p-126,
                              0x1p-149,
                              1e300,
                              INFINITY,
                              1 + 0x1p-8 + 0x1p-40,
                              1 + 0x1p-11 + 0x1p-40,
                              1.0625,
                              1.125,
                              1.1875,
                              3.3895e38,
                              0x1p-133,
                              0x1p-134,
                              0x1.8p-133,
                              1.0};
    const Layout layout = from_mask({4, 8, 4, 8, 1}, {1});
    std::vector<double> room(std::begin(numbers), std::end(numbers));
    for (size_t i = 0; i < room.size(); i += 3) room[i] = -room[i];
    const tartan_array values = array_of(room.data(), TARTAN_F64, {1, 4, 8});
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix exact(raw);
    for (int32_t from : kAll) {
        ASSERT_OK(tartan_matrix_cast(cpu(), exact.get(), from, 0, &raw));
        const Matrix source(raw);
        for (int32_t to : kAll) {
            SCOPED_TRACE(::testing::Message() << tartan_dtype_name(from) << " to " << tartan_dtype_name(to));
            if (from == TARTAN_F8E4M3 && to != from) continue; // has NaN there, with any bits
            compare(source, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
                return tartan_matrix_cast(c, m, to, 0, out);
            });
        }
    }
}

TEST_P(Blocks, AreTransposedPermutedAndSliced) {
    for (int n = 0; n < rounds(120); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s);
        const int64_t grid_rows = a->layout->grid_rows, grid_cols = a->layout->grid_cols;
        compare(a, tartan_matrix_transpose);
        const std::vector<int64_t> rows = order(grid_rows, s.rows % s.block_rows != 0),
                                   cols = order(grid_cols, s.cols % s.block_cols != 0);
        compare(a, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
            return tartan_matrix_permute(c, m, rows.data(), grid_rows, cols.data(), grid_cols, out);
        });
        const int64_t row = (int64_t)below(random, (size_t)grid_rows + 1),
                      col = (int64_t)below(random, (size_t)grid_cols + 1);
        compare(a, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
            return tartan_matrix_slice(c, m, row, grid_rows, 0, col, out);
        });
        if (HasFailure()) return;
    }
}

TEST_P(Blocks, AreProjectedAndRearranged) {
    for (int n = 0; n < rounds(120); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n);
        const Matrix a = some_matrix(n / 10, s);
        const Layout other = some_layout(s, 0.5);
        compare(a, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
            return tartan_matrix_project(c, m, other.get(), out);
        });
        if (tartan_i_is_variable(other.get())) continue; // blocks go nowhere else
        std::vector<int64_t> sources;
        for (int64_t id = 0; id < other->blocks; id++)
            sources.push_back((int64_t)below(random, (size_t)a->layout->blocks + 1) - 1);
        compare(a, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
            return tartan_matrix_rearrange(c, m, other.get(), sources.data(), other->blocks, out);
        });
        if (HasFailure()) return;
    }
}

TEST_P(Blocks, AreScattered) {
    for (int n = 0; n < rounds(120); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const tartan_shape s = shape_of(n, false);
        const Matrix into = some_matrix(n / 10, s), from = some_matrix(n / 60, s),
                     from_there = placed(context.get(), from);
        std::vector<int64_t> targets = order(into->layout->blocks, false);
        for (auto &target : targets) target = random() % 3 == 0 ? -1 : target;
        targets.resize((size_t)from->layout->blocks, -1);
        compare(into, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
            PASS(tartan_matrix_copy(c, m, out));
            return tartan_matrix_scatter(c, (c == cpu() ? from : from_there).get(), targets.data(),
                                         from->layout->blocks, *out);
        });
        if (HasFailure()) return;
    }
}

// The lists of the caller may change as soon as the calls return.
TEST_P(Blocks, ListsMayBeChangedAtOnce) {
    const Layout layout = from_mask({512, 512, 1, 1, 1}, std::vector<uint8_t>(512 * 512, 1));
    const Matrix a = random_matrix(layout, TARTAN_F32, 0, random), there = placed(context.get(), a);
    std::vector<int64_t> sources = order(layout->blocks, false);
    const std::vector<int64_t> before = sources;
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_rearrange(context.get(), there.get(), layout.get(), sources.data(),
                                      layout->blocks, &raw));
    std::fill(sources.begin(), sources.end(), -1);
    const Matrix moved(raw), got = fetched(context.get(), moved);
    for (int64_t id = 0; id < layout->blocks; id++)
        ASSERT_EQ(entry(a.get(), before[(size_t)id], 0, 0), entry(got.get(), id, 0, 0));
}

TEST_P(Blocks, AreMeasured) {
    for (int n = 0; n < rounds(120); n++) {
        SCOPED_TRACE(::testing::Message() << "case " << n);
        const Matrix a = some_matrix(n / 10, shape_of(n)), there = placed(context.get(), a);
        const int64_t blocks = a->layout->blocks;
        const double tolerance = 2e-16 * (double)tartan_i_block_elements(a.get());
        std::vector<double> want((size_t)blocks + 1, -1), got = want, again = want;
        for (int32_t norm : {TARTAN_NORM_MAX, TARTAN_NORM_L1, TARTAN_NORM_L2}) {
            ASSERT_OK(tartan_matrix_block_norms(cpu(), a.get(), norm, want.data(), blocks));
            ASSERT_OK(tartan_matrix_block_norms(context.get(), there.get(), norm, got.data(), blocks));
            ASSERT_OK(tartan_matrix_block_norms(context.get(), there.get(), norm, again.data(), blocks));
            EXPECT_EQ(got, again);
            EXPECT_EQ(-1, got.back());
            for (size_t id = 0; id < (size_t)blocks; id++) {
                if (norm == TARTAN_NORM_MAX || on_host())
                    ASSERT_EQ(want[id], got[id]);
                else
                    ASSERT_NEAR(want[id], got[id], tolerance * want[id]);
            }
        }
    }
}

TEST_P(Blocks, NormsOfExtremeAndSpecialNumbers) {
    struct Row {
        std::vector<double> numbers;
        double max, l1, l2;
    };
    const double nan = std::nan("");
    const Row rows[] = {{{3e200, -4e200}, 4e200, 7e200, 5e200},
                        {{3e-200, -4e-200}, 4e-200, 7e-200, 5e-200},
                        {{3e-310, -4e-310}, 4e-310, 7e-310, 5e-310},
                        {{0, -0.0}, 0, 0, 0},
                        {{1, -INFINITY}, INFINITY, INFINITY, INFINITY},
                        {{nan, INFINITY}, nan, nan, nan},
                        {{INFINITY, nan}, nan, nan, nan},
                        {{1, nan}, nan, nan, nan}};
    const Layout layout = from_mask({8, 2, 1, 2, 1}, std::vector<uint8_t>(8, 1));
    std::vector<double> room;
    for (const Row &row : rows) room.insert(room.end(), row.numbers.begin(), row.numbers.end());
    const tartan_array values = array_of(room.data(), TARTAN_F64, {8, 1, 2});
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &raw));
    const Matrix here(raw), there = placed(context.get(), here);
    for (int32_t norm : {TARTAN_NORM_MAX, TARTAN_NORM_L1, TARTAN_NORM_L2}) {
        double got[8];
        ASSERT_OK(tartan_matrix_block_norms(context.get(), there.get(), norm, got, 8));
        for (int i = 0; i < 8; i++) {
            const double want = norm == TARTAN_NORM_MAX  ? rows[i].max
                                : norm == TARTAN_NORM_L1 ? rows[i].l1
                                                         : rows[i].l2;
            if (std::isnan(want))
                EXPECT_TRUE(std::isnan(got[i])) << i;
            else if (std::isinf(want))
                EXPECT_EQ(want, got[i]) << i;
            else
                EXPECT_NEAR(want, got[i], 1e-14 * want + 1e-323) << i; // and the spacing of the least numbers
        }
    }
}

TEST_P(Blocks, OfAnEmptyLayout) {
    const Layout empty = from_mask({9, 7, 4, 4, 1}, std::vector<uint8_t>(6, 0)),
                 full = from_mask({9, 7, 4, 4, 1}, std::vector<uint8_t>(6, 1));
    const Matrix none = random_matrix(empty, TARTAN_F32, 0, random),
                 all = random_matrix(full, TARTAN_F32, 0, random);
    compare(none, tartan_matrix_copy);
    compare(none, tartan_matrix_transpose);
    compare(none, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
        return tartan_matrix_project(c, m, full.get(), out);
    });
    compare(all, [&](tartan_context *c, const tartan_matrix *m, tartan_matrix **out) {
        return tartan_matrix_project(c, m, empty.get(), out);
    });
    const Matrix there = placed(context.get(), none), all_there = placed(context.get(), all);
    EXPECT_OK(tartan_matrix_block_norms(context.get(), there.get(), TARTAN_NORM_L2, nullptr, 0));
    EXPECT_OK(tartan_matrix_scatter(context.get(), there.get(), nullptr, 0, all_there.get()));
}

TEST_P(Blocks, ElsewhereAreRefused) {
    const Layout layout = random_layout({8, 8, 4, 4, 1}, 1, 1);
    const Matrix here = random_matrix(layout, TARTAN_F32, 0, random), there = placed(context.get(), here);
    const int64_t ids[] = {0, 1, 2, 3};
    double norms[4];
    tartan_matrix *out = nullptr;
    if (on_host()) return;
    tartan_context *c = context.get();
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0", tartan_matrix_copy(c, here.get(), &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0", tartan_matrix_cast(c, here.get(), 0, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0", tartan_matrix_transpose(c, here.get(), &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_permute(c, here.get(), nullptr, 0, nullptr, 0, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_slice(c, here.get(), 0, 1, 0, 1, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_project(c, here.get(), layout.get(), &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_rearrange(c, here.get(), layout.get(), ids, 4, &out));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_block_norms(c, here.get(), TARTAN_NORM_L2, norms, 4));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 1:0",
                 tartan_matrix_scatter(c, there.get(), ids, 4, here.get()));
    EXPECT_FAILS(UNSUPPORTED, "from is on device 1:0",
                 tartan_matrix_scatter(c, here.get(), ids, 4, there.get()));
    EXPECT_FAILS(UNSUPPORTED, "matrix is on device 2:", tartan_matrix_copy(cpu(), there.get(), &out));
    EXPECT_EQ(nullptr, out);
}

TEST_P(Blocks, SurviveFullMemory) {
    const Layout layout = random_layout({9, 9, 4, 4, 1}, 1, 1);
    const Matrix here = random_matrix(layout, TARTAN_F32, 0, random), there = placed(context.get(), here),
                 other = placed(context.get(), here);
    const std::vector<int64_t> ids = order(layout->blocks, false), lines = {1, 0, 2};
    std::vector<double> norms((size_t)layout->blocks);
    tartan_context *c = context.get();
    tartan_matrix *out = nullptr;
    ASSERT_OK(tartan_matrix_copy(c, there.get(), &out)); // what the layout keeps from now on
    tartan_matrix_free(out);
    BRUTAL(tartan_matrix_copy(c, there.get(), &out), tartan_matrix_free(out));
    BRUTAL(tartan_matrix_cast(c, there.get(), TARTAN_F16, 1, &out), tartan_matrix_free(out));
    BRUTAL(tartan_matrix_transpose(c, there.get(), &out), tartan_matrix_free(out));
    BRUTAL(tartan_matrix_permute(c, there.get(), lines.data(), 3, nullptr, 0, &out), tartan_matrix_free(out));
    BRUTAL(tartan_matrix_slice(c, there.get(), 0, 1, 0, 2, &out), tartan_matrix_free(out));
    BRUTAL(tartan_matrix_project(c, there.get(), layout.get(), &out), tartan_matrix_free(out));
    BRUTAL(tartan_matrix_rearrange(c, there.get(), layout.get(), ids.data(), layout->blocks, &out),
           tartan_matrix_free(out));
    BRUTAL(tartan_matrix_scatter(c, other.get(), ids.data(), layout->blocks, there.get()), (void)0);
    if (!on_host())
        BRUTAL(tartan_matrix_block_norms(c, there.get(), TARTAN_NORM_L2, norms.data(), layout->blocks),
               (void)0);
}

} // namespace
