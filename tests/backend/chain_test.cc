// SPDX-License-Identifier: Apache-2.0
// Many products in a row, each of which needs the result of the one before it. On a device they are queued without
// waiting, and begin before the ones ahead of them have ended.
#include "placed.h"

namespace {

using namespace tartan_test;

struct Link {
    Layout layout;
    Matrix values;
    bool transposed;
};

class Chain : public OnBackend {
  protected:
    // Square sparse matrices of a few long and many short rows, of several block sizes.
    std::vector<Link> links(int64_t size, std::mt19937_64 &random) const {
        std::vector<Link> all;
        for (int64_t block : {128, 32, 64, 128, 16, 64, 8}) {
            const int64_t grid = size / block;
            std::vector<uint8_t> mask((size_t)(grid * grid));
            for (int64_t i = 0; i < grid; i++)
                for (int64_t j = 0; j < grid; j++)
                    mask[(size_t)(i * grid + j)] = i == j || random() % 24 < (i % 5 == 0 ? 16u : 2u);
            Layout layout = from_mask({size, size, block, block, 1}, mask);
            const Matrix a = random_matrix(layout, TARTAN_BF16, TARTAN_ROW_MAJOR, random);
            all.push_back({std::move(layout), placed(context.get(), a), random() % 2 == 1});
        }
        return all;
    }
    // The dense matrix after `count` products, with a wait after each product or none. It stays near 1.
    Dense run(const std::vector<Link> &all, const Dense &start, int count, bool waits) const {
        const Placed there[2] = {Placed(context.get(), start), Placed(context.get(), start)};
        for (int i = 0; i < count; i++) {
            const Link &link = all[(size_t)i % all.size()];
            const tartan_array &from = there[i % 2].array;
            tartan_array to = there[1 - i % 2].array;
            EXPECT_OK(tartan_spmm(context.get(), link.values.get(), nullptr, &from, 0.1, 0,
                                  spmm_options(kLeft, link.transposed), &to));
            if (waits) {
                EXPECT_OK(tartan_context_sync(context.get()));
            }
        }
        Dense out = start;
        there[count % 2].fetch(out);
        return out;
    }
};

TEST_P(Chain, ProductsWaitForWhatTheyNeed) {
    const bool here = GetParam() == "cuda";
    for (int64_t n : {256, 520, 1536}) { // fewer tiles than a device has processors, and more
        std::mt19937_64 random((uint64_t)n);
        const std::vector<Link> all = links(here ? 1024 : 256, random);
        Dense start(TARTAN_BF16, {here ? 1024 : 256, here ? n : n / 8}, kRows);
        start.fill(random);
        const int count = here ? 211 : 9;
        const Dense expected = run(all, start, count, true);
        double most = 0;
        for (int64_t i = 0; i < expected.elements(); i++) most = std::max(std::fabs(expected.get(i)), most);
        EXPECT_TRUE(most > 1e-30 && most < 1e30) << most;
        for (int again = 0; again < (here ? 5 : 1); again++)
            ASSERT_EQ(expected.memory(), run(all, start, count, false).memory()) << "n " << n;
    }
}

INSTANTIATE_TEST_SUITE_P(Each, Chain, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

} // namespace
