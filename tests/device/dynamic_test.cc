// SPDX-License-Identifier: Apache-2.0
// Dynamic layouts (blocks from masks in device memory) on every backend: products equal those on an ordinary
// layout of the same mask.
#include "dynamic.h"
#include "explained.h"

using namespace tartan_test;

namespace {

class DynamicLayouts : public OnBackend {};
INSTANTIATE_TEST_SUITE_P(Each, DynamicLayouts, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

tartan_shape some_shape(std::mt19937_64 &random) {
    const std::pair<int, int> blocks[] = {{8, 8}, {16, 16}, {32, 32}, {3, 5}, {1, 1}};
    const auto block = blocks[below(random, 5)];
    const auto size = [&](int64_t edge) { // whole blocks every other time
        return (int64_t)below(random, 9) * edge + (random() % 2 ? 0 : (int64_t)below(random, (size_t)edge));
    };
    return {size(block.first), size(block.second), block.first, block.second,
            pick<int64_t>(random, {1, 1, 2})};
}

// Operands of a product, batch dimension only where there are heads.
Dense operand(int32_t dtype, int64_t heads, int64_t rows, int64_t cols, std::mt19937_64 &random) {
    Dense dense(dtype,
                heads > 1 ? std::vector<int64_t>{heads, rows, cols} : std::vector<int64_t>{rows, cols});
    dense.fill(random);
    return dense;
}

struct Case {
    std::mt19937_64 random;
    tartan_shape shape;
    std::vector<uint8_t> mask;
    Layout fixed;
    int64_t positions, capacity;
    int32_t dtype, order;
    bool gated, masked_on_host;
    Dense gates;

    explicit Case(uint64_t seed) : random(seed) {
        shape = some_shape(random);
        positions = shape.heads * grid(shape.rows, shape.block_rows) * grid(shape.cols, shape.block_cols);
        mask = some_mask(positions, random);
        fixed = from_mask(shape, mask);
        capacity = random() % 2 ? 0 : std::min(fixed->blocks + (int64_t)below(random, 4), positions);
        dtype = kDtypes[below(random, 4)], order = (int32_t)below(random, 2);
        gated = random() % 3 == 0, masked_on_host = random() % 4 == 0;
        gates = Dense(TARTAN_F32, {capacity > 0 ? capacity : positions});
        const bool only_switch = random() % 2 == 0; // other kernels may do then
        for (int64_t i = 0; i < gates.elements(); i++)
            gates.set(i, i >= fixed->blocks ? (double)NAN
                         : only_switch      ? pick(random, {0.0, 1.0})
                                            : pick(random, {0.0, 1.0, 0.5, -2.0}));
    }
    // The gates of the blocks that there are.
    tartan_array first_gates(const Placed &all) const {
        tartan_array a = all.array;
        a.shape[0] = fixed->blocks;
        return a;
    }
};

// How far two kernels may be from each other: each within the bound of the exact sum, of terms up to 2 (a gate), and then
// rounded.
double allowed(int32_t dtype, int64_t terms, double value) {
    const int32_t sum = tartan_i_sum_dtype(dtype);
    const double sums =
        2 * (8 + 2 * std::sqrt((double)terms)) * epsilon(sum) * 2 * (double)terms + 4 * epsilon(sum);
    return sums + (dtype == sum ? 0 : epsilon(dtype) * (std::fabs(value) + sums));
}

// The kernel that an explanation names, "" if it names none.
std::string kernel_in(const std::string &text) {
    const std::string before = "\"kernel\": \"";
    const size_t at = text.find(before);
    if (at == std::string::npos) return "";
    const size_t begin = at + before.size();
    return text.substr(begin, text.find('"', begin) - begin);
}

} // namespace

TEST_P(DynamicLayouts, SpmmIsThatOfAnOrdinaryLayout) {
    for (uint64_t seed = 0; seed < rounds(200u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Case one(seed);
        const tartan_shape &s = one.shape;
        const int32_t side = (int32_t)(seed % 2), op = (int32_t)(seed / 2 % 2);
        const bool transposed = (op == 1) != (side == 1);
        const int64_t out = transposed ? s.cols : s.rows, in = transposed ? s.rows : s.cols,
                      n = (int64_t)below(one.random, 40);
        const double alpha = pick(one.random, {1.0, -0.5}), beta = pick(one.random, {0.0, 0.25});
        const Dense b = operand(one.dtype, s.heads, side ? n : in, side ? in : n, one.random);
        const Dense c = operand(one.dtype, s.heads, side ? n : out, side ? out : n, one.random);
        const Matrix host = random_matrix(one.fixed, one.dtype, one.order, one.random);
        const Matrix fixed = placed(context.get(), host);
        const Dynamic dynamic(context.get(), s, one.mask, one.capacity, one.masked_on_host);
        const Values values(context.get(), dynamic.layout, host);
        const Placed there(context.get(), b), gates(context.get(), one.gates), got(context.get(), c),
            want(context.get(), c);
        const tartan_array few = one.first_gates(gates);
        tartan_array got_array = got.array, want_array = want.array;
        const auto dynamic_product = [&] {
            return tartan_spmm(context.get(), values.matrix.get(), one.gated ? &gates.array : nullptr,
                               &there.array, alpha, beta, spmm_options(side, op), &got_array);
        };
        const auto ordinary_product = [&] {
            return tartan_spmm(context.get(), fixed.get(), one.gated ? &few : nullptr, &there.array, alpha,
                               beta, spmm_options(side, op), &want_array);
        };
        const std::string kernel = kernel_in(explained(dynamic_product));
        SCOPED_TRACE(kernel);
        // spmm_few distributes block rows by how many blocks the host expects in them, so its order of sums differs here.
        const bool same = kernel != "spmm_few" && kernel == kernel_in(explained(ordinary_product));
        ASSERT_OK(dynamic_product());
        ASSERT_OK(ordinary_product());
        Dense result = c, expected = c;
        got.fetch(result);
        want.fetch(expected);
        if (same || on_host() || dummy())
            ASSERT_EQ(result.memory(), expected.memory());
        else
            for (int64_t i = 0; i < c.elements(); i++)
                ASSERT_NEAR(result.get(i), expected.get(i), allowed(one.dtype, in, expected.get(i)));
    }
}

TEST_P(DynamicLayouts, SddmmIsThatOfAnOrdinaryLayout) {
    for (uint64_t seed = 0; seed < rounds(200u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Case one(seed);
        const tartan_shape &s = one.shape;
        const int64_t k = (int64_t)below(one.random, 40), each = s.block_rows * s.block_cols;
        const double beta = pick(one.random, {0.0, 0.25});
        const Dense x = operand(one.dtype, s.heads, s.rows, k, one.random);
        const Dense y = operand(one.dtype, s.heads, k, s.cols, one.random);
        const Matrix host = random_matrix(one.fixed, one.dtype, one.order, one.random);
        const Matrix fixed = placed(context.get(), host);
        const Dynamic dynamic(context.get(), s, one.mask, one.capacity, one.masked_on_host);
        const Values values(context.get(), dynamic.layout, host);
        const Placed left(context.get(), x), right(context.get(), y), gates(context.get(), one.gates);
        const tartan_array few = one.first_gates(gates);
        const auto dynamic_product = [&] {
            return tartan_sddmm(context.get(), &left.array, &right.array, 1,
                                one.gated ? &gates.array : nullptr, 0.5, beta, values.matrix.get());
        };
        const auto ordinary_product = [&] {
            return tartan_sddmm(context.get(), &left.array, &right.array, 1, one.gated ? &few : nullptr, 0.5,
                                beta, fixed.get());
        };
        const std::string kernel = kernel_in(explained(dynamic_product));
        SCOPED_TRACE(kernel);
        const bool same = kernel == kernel_in(explained(ordinary_product));
        ASSERT_OK(dynamic_product());
        ASSERT_OK(ordinary_product());
        const Matrix expected = fetched(context.get(), fixed), result = fetched(context.get(), values.matrix);
        ASSERT_EQ(1, tartan_layout_equal(expected->layout, result->layout));
        const int64_t elements = expected->layout->blocks * each;
        if (same || on_host() || dummy())
            ASSERT_EQ(0, memcmp(expected->values, result->values,
                                (size_t)(elements * tartan_dtype_bytes(one.dtype))));
        else
            for (int64_t i = 0; i < elements; i++) {
                const double want = tartan_i_load(expected->values, one.dtype, i);
                ASSERT_NEAR(want, tartan_i_load(result->values, one.dtype, i), allowed(one.dtype, k, want));
            }
        values.expect_rest_untouched();
    }
}

// A new mask a step on one layout: nothing waits, and products follow.
TEST_P(DynamicLayouts, BlocksFollowTheMask) {
    std::mt19937_64 random(5);
    const tartan_shape shape = {64, 48, 8, 8, 2};
    const int64_t positions = 2 * 8 * 6;
    const Dense b = operand(TARTAN_F32, 2, 48, 16, random), c = operand(TARTAN_F32, 2, 64, 16, random);
    const Placed there(context.get(), b), got(context.get(), c), want(context.get(), c);
    tartan_array got_array = got.array, want_array = want.array;
    Dynamic dynamic(context.get(), shape, some_mask(positions, random), 0, false);
    const Layout all = from_mask(shape, std::vector<uint8_t>((size_t)positions, 1));
    const Values values(context.get(), dynamic.layout, random_matrix(all, TARTAN_F32, 0, random));
    const Matrix full = values.on_host(all);
    for (int step = 0; step < 12; step++) {
        const std::vector<uint8_t> mask = some_mask(positions, random);
        const int64_t synced = tartan_dummy.synced;
        dynamic.update(mask, step % 3 == 2);
        ASSERT_OK(tartan_spmm(context.get(), values.matrix.get(), nullptr, &there.array, 1, 0, nullptr,
                              &got_array));
        EXPECT_EQ(synced, tartan_dummy.synced);
        const Layout fixed = from_mask(shape, mask);
        const Matrix now = first_blocks(fixed, full), now_there = placed(context.get(), now);
        ASSERT_OK(
            tartan_spmm(context.get(), now_there.get(), nullptr, &there.array, 1, 0, nullptr, &want_array));
        Dense result = c, expected = c;
        got.fetch(result);
        want.fetch(expected);
        if (on_host() || dummy())
            ASSERT_EQ(result.memory(), expected.memory()) << step;
        else
            for (int64_t i = 0; i < c.elements(); i++)
                ASSERT_NEAR(result.get(i), expected.get(i), allowed(TARTAN_F32, 48, expected.get(i))) << step;
        tartan_layout *raw = nullptr;
        ASSERT_OK(tartan_layout_to_host(context.get(), dynamic.layout.get(), &raw));
        EXPECT_EQ(1, tartan_layout_equal(Layout(raw).get(), fixed.get()));
    }
}

// A copy shares the layout, follows its masks too, and has values of its own.
TEST_P(DynamicLayouts, CopiesHaveAllValues) {
    std::mt19937_64 random(6);
    const tartan_shape shape = {20, 24, 8, 8, 1};
    const Layout all = from_mask(shape, std::vector<uint8_t>(9, 1));
    Dynamic dynamic(context.get(), shape, {1, 0, 0, 1, 0, 0, 1, 0, 0}, 0, false);
    Matrix copy;
    Matrix first;
    {
        const Values values(context.get(), dynamic.layout, random_matrix(all, TARTAN_F32, 0, random));
        tartan_matrix *raw = nullptr;
        BRUTAL(tartan_matrix_copy(context.get(), values.matrix.get(), &raw), tartan_matrix_free(raw));
        ASSERT_OK(tartan_matrix_copy(context.get(), values.matrix.get(), &raw));
        copy.reset(raw);
        ASSERT_OK(tartan_matrix_to_host(context.get(), values.matrix.get(), &raw));
        first.reset(raw);
    }
    EXPECT_EQ(copy->layout, dynamic.layout.get());
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_to_host(context.get(), copy.get(), &raw));
    const Matrix second(raw);
    EXPECT_EQ(1, tartan_layout_equal(first->layout, second->layout));
    EXPECT_EQ(0, memcmp(first->values, second->values, 3 * 8 * 8 * sizeof(float)));
}

TEST_P(DynamicLayouts, MoreBlocksThanRoomAreNone) {
    std::mt19937_64 random(6);
    const tartan_shape shape = {32, 32, 8, 8, 1};
    std::vector<uint8_t> mask(16, 1);
    mask[3] = mask[7] = 0;
    Dynamic dynamic(context.get(), shape, mask, 13, false);
    EXPECT_EQ(13, tartan_layout_blocks(dynamic.layout.get()));
    const Layout few = from_mask(shape, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
    const Values values(context.get(), dynamic.layout, random_matrix(few, TARTAN_F64, 0, random));
    const Dense b = operand(TARTAN_F64, 1, 32, 5, random), c = operand(TARTAN_F64, 1, 32, 5, random);
    const Placed there(context.get(), b), out(context.get(), c);
    tartan_array array = out.array;
    ASSERT_OK(
        tartan_spmm(context.get(), values.matrix.get(), nullptr, &there.array, 1, 0.5, nullptr, &array));
    Dense result = c;
    out.fetch(result);
    for (int64_t i = 0; i < c.elements(); i++) EXPECT_EQ(0.5 * c.get(i), result.get(i));
    tartan_layout *layout = nullptr;
    tartan_matrix *matrix = nullptr;
    EXPECT_FAILS(LAYOUT, "the last mask has 14 blocks, expected at most 13",
                 tartan_layout_to_host(context.get(), dynamic.layout.get(), &layout));
    EXPECT_FAILS(LAYOUT, "14 blocks", tartan_matrix_to_host(context.get(), values.matrix.get(), &matrix));
    mask[0] = 0;
    dynamic.update(mask, false);
    ASSERT_OK(tartan_layout_to_host(context.get(), dynamic.layout.get(), &layout));
    EXPECT_EQ(13, tartan_layout_blocks(Layout(layout).get()));
}

TEST_P(DynamicLayouts, TellWhatTheyAre) {
    const tartan_shape shape = {30, 20, 8, 5, 3};
    const Dynamic dynamic(context.get(), shape, std::vector<uint8_t>(48, 1), 0, false);
    const tartan_layout *l = dynamic.layout.get();
    const Layout fixed = from_mask(shape, std::vector<uint8_t>(48, 1));
    EXPECT_EQ(1, tartan_layout_is_dynamic(l));
    EXPECT_EQ(0, tartan_layout_is_dynamic(fixed.get()));
    EXPECT_EQ(-1, tartan_layout_is_dynamic(nullptr));
    EXPECT_EQ(30, tartan_layout_rows(l));
    EXPECT_EQ(20, tartan_layout_cols(l));
    EXPECT_EQ(8, tartan_layout_block_rows(l));
    EXPECT_EQ(5, tartan_layout_block_cols(l));
    EXPECT_EQ(3, tartan_layout_heads(l));
    EXPECT_EQ(4, tartan_layout_grid_rows(l));
    EXPECT_EQ(4, tartan_layout_grid_cols(l));
    EXPECT_EQ(48, tartan_layout_blocks(l));
    EXPECT_EQ(-1, tartan_layout_elements(l));
    EXPECT_EQ(-1, tartan_layout_density(l));
    EXPECT_EQ(nullptr, tartan_layout_identity(l));
    EXPECT_EQ(nullptr, tartan_layout_row_pointers(l));
    EXPECT_EQ(nullptr, tartan_layout_col_indices(l));
    EXPECT_STREQ("", tartan_layout_recipe(l));
    EXPECT_EQ(1, tartan_layout_equal(l, l));
    EXPECT_EQ(0, tartan_layout_equal(l, fixed.get()));
    tartan_layout *raw = nullptr;
    ASSERT_OK(tartan_layout_to_host(context.get(), fixed.get(), &raw));
    EXPECT_EQ(fixed.get(), raw);
    tartan_layout_free(raw);
    const Layout again(tartan_layout_retain(dynamic.layout.get()));
    EXPECT_EQ(l, again.get());
    // A copy of a matrix there is on the same layout.
    std::mt19937_64 random(1);
    const Values values(context.get(), dynamic.layout, random_matrix(fixed, TARTAN_F32, 0, random));
    const Matrix copy = placed(context.get(), values.matrix);
    EXPECT_EQ(l, copy->layout);
    EXPECT_OK(tartan_matrix_check(copy.get(), 0));
}
