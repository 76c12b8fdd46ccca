// SPDX-License-Identifier: Apache-2.0
// Layouts of the blocks that scores choose.
#include <cmath>

#include "../ops/products.h"
#include "layouts.h"

using namespace tartan_test;

namespace {

// The blocks that are chosen, by sorting each row.
Mask chosen(const tartan_shape &s, const Dense &scores, const Indices &counts, double top_p) {
    const int64_t cols = grid_cols(s), lines = s.heads * grid_rows(s);
    Mask mask((size_t)(lines * cols));
    for (int64_t line = 0; line < lines; line++) {
        std::vector<std::pair<double, int64_t>> row;
        for (int64_t j = 0; j < cols; j++) {
            const double x = scores.get(line * cols + j);
            if (x != -INFINITY) row.push_back({std::isnan(x) ? -INFINITY : -x, j});
        }
        std::sort(row.begin(), row.end());
        long double total = 0, sum = 0;
        for (const auto &one : row) total += std::exp((long double)(row[0].first - one.first));
        const int64_t most = counts.empty() ? cols : counts[counts.size() == 1 ? 0 : (size_t)line];
        for (int64_t i = 0; i < (int64_t)row.size() && i < most && (top_p == 1 || sum < top_p * total); i++) {
            sum += std::exp((long double)(row[0].first - row[(size_t)i].first));
            mask[(size_t)(line * cols + row[(size_t)i].second)] = 1;
        }
    }
    return mask;
}

tartan_status make(const tartan_shape &s, const tartan_array &scores, const Indices &counts, double top_p,
                   tartan_layout **out) {
    return tartan_layout_from_scores(&s, &scores, counts.empty() ? nullptr : counts.data(),
                                     (int64_t)counts.size(), top_p, out);
}

} // namespace

TEST(FromScores, ChoosesTheLargest) {
    std::mt19937_64 random(1);
    for (const tartan_shape &s : {tartan_shape{50, 70, 8, 9, 1}, tartan_shape{33, 200, 16, 8, 3},
                                  tartan_shape{0, 8, 8, 8, 2}, tartan_shape{8, 0, 8, 8, 1}})
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16})
            for (const bool planes : {false, true}) {
                if (!planes && s.heads > 1) continue;
                const int64_t rows = grid_rows(s), cols = grid_cols(s), lines = s.heads * rows;
                Dense scores = planes ? Dense(dtype, {s.heads, rows, cols}, kGaps)
                                      : Dense(dtype, {rows, cols}, kColumns);
                scores.fill(random, -3, 3);
                for (int64_t i = 0; i < scores.elements(); i++) {
                    if (random() % 5 == 0) scores.set(i, -INFINITY);
                    if (random() % 3 == 0) scores.set(i, 0.5); // equal ones
                }
                Indices each((size_t)lines);
                for (auto &n : each) n = (int64_t)(random() % 6);
                for (const Indices &counts : {Indices{}, Indices{2}, each})
                    for (double top_p : {1.0, 0.9, 0.5, 1e-9}) {
                        if (lines == 0 && counts.size() != 1) continue;
                        tartan_layout *out = nullptr;
                        ASSERT_OK(make(s, scores.array, counts, top_p, &out));
                        EXPECT_EQ(chosen(s, scores, counts, top_p), mask_of(out)) << top_p;
                        tartan_layout_free(out);
                    }
            }
}

TEST(FromScores, InfinityAndNotANumber) {
    const tartan_shape s = {4, 5, 4, 1, 1};
    Dense scores(TARTAN_F64, {1, 5});
    const double row[] = {1, INFINITY, NAN, -INFINITY, INFINITY};
    for (int64_t i = 0; i < 5; i++) scores.set(i, row[i]);
    tartan_layout *out = nullptr;
    ASSERT_OK(make(s, scores.array, {}, 0.6, &out)); // each of three has a third
    EXPECT_EQ((Mask{0, 1, 1, 0, 0}), mask_of(out));
    tartan_layout_free(out);
    ASSERT_OK(make(s, scores.array, {}, 1, &out));
    EXPECT_EQ((Mask{1, 1, 1, 0, 1}), mask_of(out));
    tartan_layout_free(out);
}

TEST(FromScores, Refusals) {
    const tartan_shape s = {16, 24, 8, 8, 2};
    const Dense scores(TARTAN_F32, {2, 2, 3}), flat(TARTAN_F32, {2, 3}), bytes(TARTAN_F8E4M3, {2, 2, 3});
    tartan_layout *out = nullptr;
    EXPECT_FAILS(SHAPE, "scores has shape [2, 3], expected [2, 2, 3]", make(s, flat.array, {}, 1, &out));
    for (double top_p : {0.0, -1.0, 1.5, (double)NAN})
        EXPECT_FAILS(ARGUMENT, "expected a number above 0 and up to 1",
                     make(s, scores.array, {}, top_p, &out));
    EXPECT_FAILS(SHAPE, "counts has 2 entries, expected none, 1, or 4",
                 make(s, scores.array, {1, 2}, 1, &out));
    EXPECT_FAILS(ARGUMENT, "counts[1] is -1, expected 0 or more",
                 make(s, scores.array, {1, -1, 2, 3}, 1, &out));
    EXPECT_FAILS(HANDLE, "counts is NULL", tartan_layout_from_scores(&s, &scores.array, nullptr, 1, 1, &out));
    EXPECT_FAILS(HANDLE, "scores", tartan_layout_from_scores(&s, nullptr, nullptr, 0, 1, &out));
    EXPECT_FAILS(HANDLE, "out is NULL", make(s, scores.array, {}, 1, nullptr));
    BRUTAL(make(s, scores.array, {}, 1, &out), tartan_layout_free(out));
}
