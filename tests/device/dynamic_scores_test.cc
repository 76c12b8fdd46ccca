// SPDX-License-Identifier: Apache-2.0
// Dynamic layouts of the largest scores of each block row, on every backend.
#include "dynamic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace tartan_test;

namespace {

class DynamicScores : public OnBackend {
  protected:
    tartan_layout *out = nullptr;

    tartan_status make(const tartan_shape &shape, const tartan_array &scores, int64_t k) {
        return tartan_layout_from_device_scores(context.get(), &shape, &scores, k, &out);
    }
    Layout now(const Layout &layout) {
        tartan_layout *found = nullptr;
        EXPECT_OK(tartan_layout_to_host(context.get(), layout.get(), &found));
        return Layout(found);
    }
};
INSTANTIATE_TEST_SUITE_P(Each, DynamicScores, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

Dense grid_of(int32_t dtype, const tartan_shape &s) {
    const int64_t rows = grid(s.rows, s.block_rows), cols = grid(s.cols, s.block_cols);
    return Dense(dtype,
                 s.heads > 1 ? std::vector<int64_t>{s.heads, rows, cols} : std::vector<int64_t>{rows, cols});
}

// Scores with many ties, or none, and with special values among them.
Dense some_scores(int32_t dtype, const tartan_shape &shape, std::mt19937_64 &random) {
    Dense scores = grid_of(dtype, shape);
    const double steps = pick(random, {2.0, 50.0, 1e9});
    const bool special = random() % 2;
    for (int64_t i = 0; i < scores.elements(); i++) {
        const double x = std::round((std::generate_canonical<double, 53>(random) - 0.5) * steps) / steps;
        const double others[] = {NAN, -NAN, INFINITY, -INFINITY, -INFINITY, 0.0, -0.0, 1e-7, 65504};
        scores.set(i, special && random() % 3 == 0 ? others[below(random, 9)] : x * 8);
    }
    return scores;
}

// By a stable sort of each row.
std::vector<uint8_t> largest_of(const Dense &scores, int64_t cols, int64_t k) {
    std::vector<uint8_t> mask((size_t)scores.elements(), 0);
    for (int64_t first = 0; first < scores.elements(); first += cols) {
        const auto at = [&](int64_t j) {
            const double x = scores.get(first + j);
            return std::isnan(x) ? (double)INFINITY : x;
        };
        std::vector<int64_t> order((size_t)cols);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return at(a) > at(b); });
        for (int64_t i = 0; i < std::min(k, cols); i++)
            if (at(order[(size_t)i]) > -INFINITY) mask[(size_t)(first + order[(size_t)i])] = 1;
    }
    return mask;
}

} // namespace

TEST_P(DynamicScores, LayoutsHaveTheLargestOfEachRow) {
    for (uint64_t seed = 0; seed < rounds(150u) && !HasFailure(); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        const int32_t dtype = kDtypes[seed % 4];
        // The longest rows are more than a CTA of a GPU keeps in its memory.
        const int64_t cols = seed % 25 == 24 ? 12000 : seed % 5 == 4 ? 1300 : (int64_t)below(random, 90);
        const tartan_shape shape = {(int64_t)below(random, 60),
                                    3 * cols - (cols > 0 ? (int64_t)below(random, 2) : 0), 8, 3,
                                    pick<int64_t>(random, {1, 2, 5})};
        const int64_t lines = shape.heads * grid(shape.rows, 8),
                      k = pick<int64_t>(random, {1, 2, 7, 64, cols > 1 ? cols - 1 : 1, cols + 3});
        const Dense scores = some_scores(dtype, shape, random);
        const Placed there(context.get(), scores);
        ASSERT_OK(make(shape, seed % 3 == 0 ? scores.array : there.array, k));
        const Layout layout(out);
        EXPECT_EQ(lines * std::min(k, cols), tartan_layout_blocks(layout.get()));
        EXPECT_EQ(1, tartan_layout_is_dynamic(layout.get()));
        const Layout want = from_mask(shape, largest_of(scores, cols, k));
        EXPECT_EQ(1, tartan_layout_equal(want.get(), now(layout).get()));
    }
}

// New scores in every step, of any dtype, with any k that the layout has room for; masks between them.
TEST_P(DynamicScores, BlocksFollowTheScores) {
    std::mt19937_64 random(5);
    const tartan_shape shape = {40, 130, 8, 10, 2};
    const int64_t cols = 13;
    ASSERT_OK(make(shape, grid_of(TARTAN_F32, shape).array, 4));
    const Layout layout(out);
    for (int step = 0; step < 20; step++) {
        const int64_t k = 1 + step % 4;
        const Dense scores = some_scores(kDtypes[step / 2 % 4], shape, random);
        const Placed there(context.get(), scores);
        const int64_t synced = tartan_dummy.synced;
        ASSERT_OK(tartan_layout_update_device_scores(context.get(), layout.get(),
                                                     step % 5 == 4 ? &scores.array : &there.array, k));
        EXPECT_EQ(synced, tartan_dummy.synced);
        EXPECT_EQ(
            1, tartan_layout_equal(from_mask(shape, largest_of(scores, cols, k)).get(), now(layout).get()));
        if (step % 7 != 6) continue;
        std::vector<uint8_t> mask((size_t)(2 * 5 * cols), 0);
        for (size_t i = 0; i < 40; i++) mask[3 * i] = 1;
        const PlacedMask bytes(context.get(), shape, mask, false);
        ASSERT_OK(tartan_layout_update_device_mask(context.get(), layout.get(), &bytes.array));
        EXPECT_EQ(1, tartan_layout_equal(from_mask(shape, mask).get(), now(layout).get()));
    }
    Dynamic masked(context.get(), shape, std::vector<uint8_t>((size_t)(2 * 5 * cols), 0), 25, false);
    const Dense scores = some_scores(TARTAN_F32, shape, random);
    ASSERT_OK(tartan_layout_update_device_scores(context.get(), masked.layout.get(), &scores.array, 2));
    EXPECT_EQ(1, tartan_layout_equal(from_mask(shape, largest_of(scores, cols, 2)).get(),
                                     now(masked.layout).get()));
    EXPECT_FAILS(ARGUMENT,
                 "k is 3, expected at most 2, since the layout has room for 25 blocks in 10 block rows",
                 tartan_layout_update_device_scores(context.get(), masked.layout.get(), &scores.array, 3));
}

TEST_P(DynamicScores, BadScores) {
    const tartan_shape shape = {16, 24, 8, 8, 1};
    const Dense dense(TARTAN_F32, {2, 3});
    const Placed good(context.get(), dense);
    ASSERT_OK(make(shape, good.array, 2));
    const Layout layout(out);
    tartan_array a = good.array;
    const auto refused = [&](const char *part, tartan_status status) {
        out = (tartan_layout *)8;
        EXPECT_EQ(status, make(shape, a, 2)) << tartan_last_error();
        EXPECT_NE(std::string::npos, std::string(tartan_last_error()).find(part)) << tartan_last_error();
        EXPECT_EQ(nullptr, out);
        EXPECT_EQ(status, tartan_layout_update_device_scores(context.get(), layout.get(), &a, 2));
        EXPECT_NE(std::string::npos, std::string(tartan_last_error()).find(part)) << tartan_last_error();
    };
    a.dtype = TARTAN_U8;
    refused("scores has dtype 7, expected 1 .. 6", TARTAN_ERR_DTYPE);
    a.dtype = TARTAN_F8E4M3;
    refused("scores is of float8_e4m3fn, expected float64, float32, float16 or bfloat16", TARTAN_ERR_DTYPE);
    a = good.array, a.shape[1] = 4;
    refused("scores has shape [2, 4], expected [2, 3] (block rows, block columns)", TARTAN_ERR_SHAPE);
    a = good.array, a.strides[0] = 4;
    refused("scores has stride 4 in dimension 0, expected 3 (no gaps, row-major)", TARTAN_ERR_SHAPE);
    a = good.array, a.data = nullptr;
    refused("scores of shape [2, 3] has data NULL", TARTAN_ERR_HANDLE);
    a = good.array, a.device_type = TARTAN_CUDA, a.device_id = 7;
    refused("scores is on device 2:7, expected", TARTAN_ERR_UNSUPPORTED);
}

TEST_P(DynamicScores, BadArguments) {
    const tartan_shape shape = {16, 24, 8, 8, 1};
    const Dense dense(TARTAN_F32, {2, 3});
    const Placed placed(context.get(), dense);
    const tartan_array a = placed.array;
    tartan_context *x = context.get();
    ASSERT_OK(make(shape, a, 2));
    const Layout layout(out), fixed = from_mask(shape, {1, 0, 1, 0, 1, 1});
    tartan_layout *l = layout.get();
    for (int64_t k : {(int64_t)0, (int64_t)-1, INT64_MIN}) {
        EXPECT_FAILS(ARGUMENT, "expected 1 or more", make(shape, a, k));
        EXPECT_FAILS(ARGUMENT, "expected 1 or more", tartan_layout_update_device_scores(x, l, &a, k));
    }
    EXPECT_FAILS(ARGUMENT, "k is 3, expected at most 2", tartan_layout_update_device_scores(x, l, &a, 3));
    EXPECT_FAILS(ARGUMENT, "k is 9223372036854775807",
                 tartan_layout_update_device_scores(x, l, &a, INT64_MAX));
    ASSERT_OK(make(shape, a, INT64_MAX));
    EXPECT_EQ(6, tartan_layout_blocks(Layout(out).get()));
    EXPECT_FAILS(SHAPE, "shape is -1 x 24", make({-1, 24, 8, 8, 1}, a, 2));
    EXPECT_FAILS(HANDLE, "shape is NULL", tartan_layout_from_device_scores(x, nullptr, &a, 2, &out));
    EXPECT_FAILS(HANDLE, "scores is NULL", tartan_layout_from_device_scores(x, &shape, nullptr, 2, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", tartan_layout_from_device_scores(x, &shape, &a, 2, nullptr));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_layout_from_device_scores(nullptr, &shape, &a, 2, &out));
    EXPECT_FAILS(HANDLE, "context is NULL", tartan_layout_update_device_scores(nullptr, l, &a, 2));
    EXPECT_FAILS(HANDLE, "layout is NULL", tartan_layout_update_device_scores(x, nullptr, &a, 2));
    EXPECT_FAILS(HANDLE, "scores is NULL", tartan_layout_update_device_scores(x, l, nullptr, 2));
    EXPECT_FAILS(ARGUMENT, "layout is not dynamic",
                 tartan_layout_update_device_scores(x, fixed.get(), &a, 2));
    if (on_host()) return;
    const Context cpu = open_context();
    EXPECT_FAILS(UNSUPPORTED, "(as the context)",
                 tartan_layout_update_device_scores(cpu.get(), l, &dense.array, 2));
}

TEST_P(DynamicScores, MemoryRunsOut) {
    const tartan_shape shape = {16, 24, 8, 8, 1};
    std::mt19937_64 random(1);
    Dense dense(TARTAN_F32, {2, 3});
    dense.fill(random);
    const Placed there(context.get(), dense);
    { BRUTAL(make(shape, there.array, 2), tartan_layout_free(out)); }
    { BRUTAL(make(shape, dense.array, 2), tartan_layout_free(out)); }
    ASSERT_OK(make(shape, there.array, 2));
    const Layout layout(out), before = now(layout);
    if (on_host()) { // a layout is as it was after a failure
        Dense other = dense;
        for (int64_t i = 0; i < 6; i++) other.set(i, -dense.get(i));
        const Layout after = from_mask(shape, largest_of(other, 3, 2));
        for (int64_t n = 0;; n++) {
            tartan_i_memory_fail_at(n);
            const tartan_status status =
                tartan_layout_update_device_scores(context.get(), layout.get(), &other.array, 2);
            tartan_i_memory_fail_at(-1);
            EXPECT_EQ(1,
                      tartan_layout_equal(now(layout).get(), (status == TARTAN_OK ? after : before).get()));
            if (status == TARTAN_OK) break;
            ASSERT_EQ(TARTAN_ERR_MEMORY, status);
        }
    }
    if (!dummy()) return;
    tartan_dummy.lost = true;
    EXPECT_FAILS(DEVICE, "was lost", make(shape, there.array, 2));
    EXPECT_FAILS(DEVICE, "was lost",
                 tartan_layout_update_device_scores(context.get(), layout.get(), &there.array, 2));
    tartan_dummy.lost = false;
}
