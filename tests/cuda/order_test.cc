// SPDX-License-Identifier: Apache-2.0
#include "support.h"

extern "C" {
#include "order.h"
}

using namespace tartan_test;

namespace {

enum { kProbes = TARTAN_CUDA_PROBES };

// Measurements like those of an H100: each line is near to one side (290 cycles) and far from the other (500), and SMs of
// one side differ by where they are on it.
struct Chip {
    int32_t processors;
    std::vector<uint32_t> cycles;
    std::vector<int> sides;
    Chip(int32_t count, double noise, std::mt19937_64 &random, double others = 0.5) : processors(count) {
        std::vector<int> homes(kProbes);
        for (int i = 0; i < kProbes; i++) homes[(size_t)i] = (int)((i + random() % 2) % 2);
        for (int32_t p = 0; p < count; p++) {
            const int side = p > 0 && (double)(random() >> 11) * 0x1p-53 < others;
            const double own = (double)(random() % 40);
            sides.push_back(side);
            for (int i = 0; i < kProbes; i++) {
                const double near = homes[(size_t)i] == side ? 290 : 500;
                cycles.push_back((uint32_t)(near + own + noise * (double)(random() % 100)));
            }
        }
    }
    tartan_cuda_sides found() const {
        tartan_cuda_sides out;
        tartan_cuda_sides_of(cycles.data(), processors, &out);
        return out;
    }
};

int side_in(const tartan_cuda_sides &found, int32_t processor) {
    return (int)(found.of[processor / 32] >> processor % 32 & 1);
}

void expect_one(const tartan_cuda_sides &found) {
    EXPECT_EQ(1, found.count);
    for (const uint32_t word : found.of) EXPECT_EQ(0u, word);
}

// A random layout of square blocks, a band of blocks beside the diagonal, or all blocks.
Layout layout_of(int64_t grid, int64_t block, double density, int64_t half_width) {
    std::mt19937_64 random(5);
    std::vector<uint8_t> mask((size_t)(grid * grid));
    for (int64_t i = 0; i < grid; i++)
        for (int64_t j = 0; j < grid; j++)
            mask[(size_t)(i * grid + j)] =
                half_width < 0 ? (double)(random() >> 11) * 0x1p-53 < density : std::abs(i - j) <= half_width;
    return from_mask({grid * block, grid * block, block, block, 1}, mask);
}

bool is_local(const Layout &layout, bool by_columns) {
    tartan_cuda_spmm p = {};
    EXPECT_OK(tartan_cuda_figures_of(&tartan_i_host, layout.get(), &p.figures));
    p.heads = 1, p.blocks = tartan_layout_blocks(layout.get()), p.by_columns = by_columns;
    p.grid_m = tartan_layout_grid_rows(layout.get()), p.grid_k = tartan_layout_grid_cols(layout.get());
    return tartan_cuda_is_local(&p);
}

} // namespace

TEST(CudaOrder, SidesAreToldFromMeasurements) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 200 && !HasFailure(); i++) {
        const Chip chip(i % 2 ? 132 : 64 + (int32_t)(random() % 192), 0.5, random);
        const tartan_cuda_sides found = chip.found();
        ASSERT_EQ(2, found.count);
        for (int32_t p = 0; p < chip.processors; p++)
            ASSERT_EQ(chip.sides[(size_t)p], side_in(found, p)) << p;
        for (int32_t p = chip.processors; p < TARTAN_CUDA_PROCESSORS; p++) ASSERT_EQ(0, side_in(found, p));
    }
}

TEST(CudaOrder, UnclearMeasurementsAreOneSide) {
    std::mt19937_64 random(2);
    expect_one(Chip(132, 0.5, random, 0).found());    // all alike
    expect_one(Chip(132, 0.5, random, 0.05).found()); // hardly any others
    expect_one(Chip(132, 20, random).found());        // noise
    expect_one(Chip(1, 0.5, random).found());
    expect_one(Chip(0, 0.5, random).found());
    expect_one(Chip(TARTAN_CUDA_PROCESSORS + 1, 0.5, random).found());
    Chip missing(132, 0.5, random);
    missing.cycles[77 * kProbes + 3] = 0; // an SM that did not measure
    expect_one(missing.found());
    Chip same(132, 0, random);
    std::fill(same.cycles.begin(), same.cycles.end(), 300u);
    expect_one(same.found());
}

TEST(CudaOrder, NeighboursThatReadTheSameAreLocal) {
    EXPECT_TRUE(is_local(layout_of(64, 8, 0, 3), false));
    EXPECT_TRUE(is_local(layout_of(128, 8, 0, 6), true));
    EXPECT_FALSE(is_local(layout_of(64, 8, 0.1, -1), false)); // read all of B
    EXPECT_FALSE(is_local(layout_of(64, 8, 0.1, -1), true));
    EXPECT_FALSE(is_local(layout_of(64, 8, 1, -1), false));
    EXPECT_FALSE(is_local(layout_of(16, 8, 0, 3), false)); // 16 rows are all of it
}

TEST(CudaOrder, PanelsAreNarrowButAsLongAsTheirLongestTile) {
    const int64_t kMega = 1 << 20;
    const auto panel = [](int64_t strips, int64_t groups, int64_t bytes, double mean, double longest,
                          double processors = 66, bool local = false) {
        const tartan_cuda_tile_grid grid = {strips, groups, 16, bytes, mean, longest, processors, local};
        return tartan_cuda_panel_of(&grid);
    };
    // On an H200, of which a side has 66 processors, at density 0.1: the widths that were fastest.
    EXPECT_EQ(8, panel(8, 32, 2 * kMega, 7.7, 21.3));         // 4096, bf16, blocks of 128
    EXPECT_EQ(2, panel(4, 64, 4 * kMega, 7.7, 14.3));         // 64
    EXPECT_EQ(1, panel(4, 64, 4 * kMega, 13.5, 17.8));        // 32
    EXPECT_EQ(4, panel(8, 32, 4 * kMega, 14, 41.3));          // tf32, 128
    EXPECT_EQ(2, panel(16, 64, 4 * kMega, 14.1, 28));         // 8192, bf16, 128
    EXPECT_EQ(1, panel(8, 128, 8 * kMega, 14.1, 22));         // 64
    EXPECT_EQ(1, panel(8, 128, 8 * kMega, 0, 0));             // nothing known of lengths
    EXPECT_EQ(8, panel(8, 4, kMega, 1, 1, 132));              // few groups: all strips at once
    EXPECT_EQ(1, panel(8, 4, 100 * kMega, 1, 1, 132));        // not if L2 cannot hold them
    EXPECT_EQ(16, panel(32, 64, 8 * kMega, 8, 10, 66, true)); // local: a matrix's
    EXPECT_EQ(4, panel(4, 64, 8 * kMega, 8, 10, 66, true));
    EXPECT_EQ(1, panel(0, 64, kMega, 8, 10));
    EXPECT_EQ(8, panel(8, 0, kMega, 0, 0)); // no rows at all
    // Panels are as wide as each other, but for the last.
    for (int64_t strips = 1; strips < 60; strips++) {
        for (int64_t groups = 1; groups < 200; groups += 7) {
            const int64_t width = panel(strips, groups, kMega, 3, 7), panels = (strips + width - 1) / width;
            ASSERT_TRUE(width >= 1 && width <= strips);
            EXPECT_TRUE(panels == 1 || (strips + panels - 2) / (panels - 1) > width);
        }
    }
}

TEST(CudaOrder, TailsAreAsLongAsTheirLongestTile) {
    const auto tail = [](int64_t strips, int64_t groups, double mean, double longest) {
        const tartan_cuda_tile_grid grid = {strips, groups, 16, 0, mean, longest, 132, false};
        return tartan_cuda_tail_of(&grid);
    };
    EXPECT_EQ(5, tail(16, 64, 6.4, 14)); // f64 at 4096, blocks of 64
    EXPECT_EQ(2, tail(32, 128, 12.8, 22));
    EXPECT_EQ(1, tail(32, 256, 10, 10));
    EXPECT_EQ(3, tail(3, 64, 6.4, 14));
    EXPECT_EQ(3, tail(9, 64, 0, 0)); // nothing known of lengths
    EXPECT_EQ(0, tail(0, 64, 6.4, 14));
    EXPECT_EQ(16, tail(16, 0, 0, 0)); // no rows at all
}
