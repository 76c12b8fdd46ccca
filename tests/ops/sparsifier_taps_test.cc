// SPDX-License-Identifier: Apache-2.0
// The filter of a convolution as a weight: the blocks of a layout of channels, at each tap of the kernel.
#include "sparsifier_support.h"

#include <cmath>

using namespace tartan_test;

namespace {

struct FreeConv {
    void operator()(tartan_conv *p) const { tartan_conv_free(p); }
};
Layout filter_layout(tartan_layout *channels) {
    tartan_conv *conv = nullptr;
    tartan_layout *out = nullptr;
    EXPECT_OK(tartan_conv_create(channels, "kernel=3x2", &conv));
    EXPECT_OK(tartan_conv_get_layout(conv, &out));
    tartan_conv_free(conv);
    return Layout(out);
}

// The score of each block of channels, from the norms of the blocks of its filter.
std::vector<double> scores_of(const tartan_matrix *filter, const tartan_layout *channels, const char *score) {
    const bool max = std::strcmp(score, "max") == 0, l1 = std::strcmp(score, "l1") == 0;
    const std::vector<double> norms = norms_of(filter, max  ? TARTAN_NORM_MAX
                                                       : l1 ? TARTAN_NORM_L1
                                                            : TARTAN_NORM_L2);
    const Layout l = layout_of(filter);
    const int64_t n = (int64_t)norms.size(), grid = tartan_layout_grid_cols(channels);
    std::vector<int64_t> heads(norms.size()), rows(heads), cols(heads);
    EXPECT_OK(tartan_layout_get_coordinates(l.get(), heads.data(), n, rows.data(), n, cols.data(), n));
    std::vector<double> out((size_t)tartan_layout_blocks(channels));
    for (size_t i = 0; i < norms.size(); i++) {
        const int64_t id = tartan_layout_block(channels, 0, rows[i], cols[i] % grid);
        double &sum = out[(size_t)id];
        sum = max ? std::max(sum, norms[i]) : sum + (l1 ? norms[i] : norms[i] * norms[i]);
    }
    const bool rms = std::strcmp(score, "rms") == 0;
    for (double &x : out) x = max || l1 ? x : std::sqrt(x / (rms ? 6 * 8 * 16 : 1));
    return out;
}

class SparsifierTaps : public testing::TestWithParam<const char *> {};

TEST_P(SparsifierTaps, BlocksOfAllTapsStayOrGoTogether) {
    const Layout channels = random_layout({60, 100, 8, 16, 1}, 0.7, 1);
    const Layout stored = filter_layout(channels.get());
    ASSERT_EQ(tartan_layout_blocks(stored.get()), 6 * tartan_layout_blocks(channels.get()));
    const std::string options = std::string("swap=0.2 begin=0 growth=random density=0.4 score=") + GetParam();
    const Sparsifier s = sparsifier_of(options.c_str(), {channels.get()});
    const Matrix w = normal_on(stored.get(), 1), m = normal_on(stored.get(), 2);
    tartan_matrix *parts[2] = {normal_on(stored.get(), 1).release(), normal_on(stored.get(), 2).release()};
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 2));
    const Layout next = layout_of(s.get());
    const std::vector<double> scores = scores_of(w.get(), channels.get(), GetParam());
    const std::string initial = " initial=" + std::to_string(tartan_layout_density(channels.get()));
    const Layout expected =
        evolved(channels.get(), scores, {}, 1, ("swap=0.2 density=0.4" + initial).c_str());
    EXPECT_TRUE(tartan_layout_equal(next.get(), expected.get()));
    const Layout filter = filter_layout(next.get());
    EXPECT_TRUE(tartan_layout_equal(layout_of(parts[0]).get(), filter.get()));
    EXPECT_EQ(values_of(parts[0]), values_of(projected(w.get(), filter.get()).get()));
    EXPECT_EQ(values_of(parts[1]), values_of(projected(m.get(), filter.get()).get()));
    for (tartan_matrix *part : parts) tartan_matrix_free(part);
}
INSTANTIATE_TEST_SUITE_P(Scores, SparsifierTaps, testing::Values("rms", "max", "l1", "l2"));

// Channels that are no multiple of a block: rows and columns beyond them stay 0 in all taps.
TEST(SparsifierTapsFill, OnlyChannelsAreFilled) {
    const Layout channels = random_layout({60, 100, 8, 16, 1}, 0.5, 1),
                 stored = filter_layout(channels.get());
    const Sparsifier s = sparsifier_of("swap=0.5 growth=random fill=normal", {channels.get()});
    tartan_matrix *parts[1] = {zeros_on(stored.get()).release()};
    tartan_array view;
    ASSERT_OK(tartan_matrix_values(parts[0], &view));
    for (int64_t i = 0; i < view.shape[0] * 128; i++) static_cast<double *>(view.data)[i] = 1;
    ASSERT_OK(tartan_sparsifier_step(cpu(), s.get(), parts, 1));
    const Layout now = layout_of(parts[0]);
    const std::vector<double> values = values_of(parts[0]);
    const int64_t n = tartan_layout_blocks(now.get()), grid = tartan_layout_grid_cols(channels.get());
    std::vector<int64_t> heads((size_t)n), rows(heads), cols(heads);
    ASSERT_OK(tartan_layout_get_coordinates(now.get(), heads.data(), n, rows.data(), n, cols.data(), n));
    int64_t filled = 0, beyond = 0;
    for (int64_t i = 0; i < n * 128; i++) {
        const double x = values[(size_t)i];
        if (values[(size_t)(i / 128 * 128)] == 1) continue; // a block that stays
        const bool inside = rows[(size_t)(i / 128)] * 8 + i % 128 / 16 < 60 &&
                            cols[(size_t)(i / 128)] % grid * 16 + i % 16 < 100;
        EXPECT_EQ(x != 0, inside);
        (inside ? filled : beyond)++;
    }
    EXPECT_GT(filled, 1000);
    EXPECT_GT(beyond, 100);
    tartan_matrix_free(parts[0]);
}

TEST(SparsifierTapsRefusals, OtherBlocksAndAllocations) {
    const Layout channels = random_layout({60, 100, 8, 16, 1}, 0.5, 1),
                 stored = filter_layout(channels.get());
    const Layout other = random_layout({60, 600, 8, 16, 1}, 0.5, 1);
    const Sparsifier s = sparsifier_of("density=0.25 fill=normal", {channels.get()});
    const Matrix odd = zeros_on(other.get()), w = normal_on(stored.get(), 1);
    EXPECT_FAILS(LAYOUT, "blocks in a grid of 8 x 38", tartan_sparsifier_check(s.get(), 0, odd.get()));
    ASSERT_OK(tartan_sparsifier_check(s.get(), 0, w.get()));
    ASSERT_OK(tartan_sparsifier_measure(cpu(), s.get(), 0, w.get()));
    ASSERT_OK(tartan_sparsifier_prepare(s.get()));
    tartan_matrix *out = nullptr;
    BRUTAL(in_new_context(
               2, [&](tartan_context *c) { return tartan_sparsifier_move(c, s.get(), 0, w.get(), &out); }),
           tartan_matrix_free(out));
}

} // namespace
