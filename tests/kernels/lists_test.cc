// SPDX-License-Identifier: Apache-2.0
// Lists of blocks times a vector, and lines of small blocks times blocks: each instruction set gives the chains of fused
// multiply-adds that their definition says, and writes nothing else.
#include "tables.h"

#include <cmath>

namespace {

using tartan_test::below;
using tartan_test::fill;
using tartan_test::Guarded;
using tartan_test::Tables;

class ListKernels : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, ListKernels, ::testing::ValuesIn(tartan_test::feature_sets()),
                         [](const auto &set) { return tartan_test::features_name(set.param); });

// A random operator of out_block x in_block blocks, `missing` rows and columns of whose last blocks do not exist.
template <typename T> struct Lists {
    std::vector<int64_t> pointers{0}, ids;
    std::vector<int32_t> others;
    std::vector<T> values, x;
    tartan_i_list_product p = {};
    Lists(int64_t out_block, int64_t in_block, bool by_row, int64_t lines, std::mt19937_64 &random) {
        const int64_t cols = 1 + (int64_t)below(random, 5);
        for (int64_t line = 0; line < lines; line++) {
            for (int32_t col = 0; col < cols; col++)
                if (random() % 2) others.push_back(col);
            pointers.push_back((int64_t)others.size());
        }
        for (size_t i = 0; i < others.size(); i++) ids.push_back((int64_t)below(random, others.size() + 2));
        p.out_block = out_block, p.in_block = in_block, p.block_elements = out_block * in_block;
        p.a_row = by_row ? in_block : 1, p.a_col = by_row ? 1 : out_block;
        p.out_size = lines * out_block - (int64_t)below(random, (size_t)out_block);
        p.in_size = cols * in_block - (int64_t)below(random, (size_t)in_block);
        p.x_step = 1 + (int64_t)(random() % 2) * 2;
        values.resize((others.size() + 2) * (size_t)p.block_elements);
        x.resize((size_t)(p.in_size * p.x_step));
        fill(values.data(), values.size(), random);
        fill(x.data(), x.size(), random);
        p.pointers = pointers.data(), p.ids = random() % 2 ? ids.data() : nullptr, p.others = others.data();
        p.values = values.data(), p.x = x.data();
    }
    T chain(int64_t row) const {
        const int64_t line = row / p.out_block;
        T sum = 0;
        for (int64_t at = p.pointers[line]; at < p.pointers[line + 1]; at++)
            for (int64_t k = 0, col; k < p.in_block && (col = p.others[at] * p.in_block + k) < p.in_size; k++)
                sum = std::fma(values[(size_t)((p.ids != nullptr ? p.ids[at] : at) * p.block_elements +
                                               row % p.out_block * p.a_row + k * p.a_col)],
                               x[(size_t)(col * p.x_step)], sum);
        return sum;
    }
};

template <typename T>
void check(const tartan_i_kernels &k, int64_t out_block, int64_t in_block, bool by_row) {
    std::mt19937_64 random((uint64_t)(out_block * 100 + in_block * 2 + by_row));
    for (int round = 0; round < (out_block == 1 ? 40 : 6); round++) { /* one row has more ways */
        const int64_t lines = 1 + (int64_t)below(random, 12);         /* some rows at a time, and a rest */
        Lists<T> list(out_block, in_block, by_row, lines, random);
        list.p.begin = (int64_t)below(random, (size_t)lines);
        list.p.end = list.p.begin + (int64_t)below(random, (size_t)(lines - list.p.begin + 1));
        const int64_t first = list.p.begin * out_block,
                      last = std::min(list.p.end * out_block, list.p.out_size);
        const size_t n = (size_t)std::max<int64_t>(last - first, 0);
        Guarded<T> sums(n, below(random, 16));
        list.p.sums = sums.data();
        k.list_products(&list.p);
        for (size_t i = 0; i < n; i++) {
            const T want = list.chain(first + (int64_t)i);
            EXPECT_SAME_BITS(1, &want, sums.data() + i) << "row " << i << " of " << n;
        }
        EXPECT_TRUE(sums.intact());
    }
}

TEST_P(ListKernels, ProductsAreChainsOfFusedProducts) {
    for (int64_t rows = 1; rows <= 20; rows++)
        for (int64_t cols : {(int64_t)1, (int64_t)2, (int64_t)3, (int64_t)4, (int64_t)7, (int64_t)8, rows})
            for (bool by_row : {true, false}) {
                SCOPED_TRACE(::testing::Message()
                             << rows << " x " << cols << (by_row ? " by rows" : " by columns"));
                check<float>(Tables<float>(GetParam()).best, rows, cols, by_row);
                check<double>(Tables<double>(GetParam()).best, rows, cols, by_row);
            }
}

// The same times several columns, or half a vector of them.
template <typename T>
void check_columns(const tartan_i_kernels &k, bool half, int64_t out_block, int64_t in_block,
                   std::mt19937_64 &random) {
    const int64_t lines = 1 + (int64_t)below(random, 6), vectors = 1 + (int64_t)below(random, 9);
    Lists<T> list(out_block, in_block, half || random() % 2, lines, random);
    tartan_i_list_product &p = list.p;
    const int64_t columns = half ? k.lanes / 2 : vectors * k.lanes;
    p.begin = (int64_t)below(random, (size_t)lines);
    p.end = p.begin + (int64_t)below(random, (size_t)(lines - p.begin + 1));
    p.vectors = vectors, p.x_step = columns + (int64_t)below(random, 3);
    p.sums_row = columns + (int64_t)below(random, 3);
    std::vector<T> x((size_t)(p.in_size * p.x_step));
    fill(x.data(), x.size(), random);
    p.x = x.data();
    const int64_t first = p.begin * out_block,
                  rows = std::max<int64_t>(std::min(p.end * out_block, p.out_size) - first, 0);
    Guarded<T> sums(rows > 0 ? (size_t)((rows - 1) * p.sums_row + columns) : 0, below(random, 16));
    p.sums = sums.data();
    for (int64_t i = 0; i + 1 < rows; i++) /* between rows nothing is written */
        for (int64_t j = columns; j < p.sums_row; j++) sums.data()[i * p.sums_row + j] = 7;
    (half ? k.list_halves : k.list_columns)(&p);
    list.x.resize((size_t)p.in_size);
    const int64_t x_step = p.x_step;
    p.x_step = 1;
    for (int64_t j = 0; j < columns; j++) {
        for (int64_t i = 0; i < p.in_size; i++) list.x[(size_t)i] = x[(size_t)(i * x_step + j)];
        for (int64_t i = 0; i < rows; i++) {
            const T want = list.chain(first + i);
            EXPECT_SAME_BITS(1, &want, sums.data() + i * p.sums_row + j) << "row " << i << ", column " << j;
        }
    }
    for (int64_t i = 0; i + 1 < rows; i++)
        for (int64_t j = columns; j < p.sums_row; j++) EXPECT_EQ(sums.data()[i * p.sums_row + j], 7);
    EXPECT_TRUE(sums.intact());
}

TEST_P(ListKernels, ProductsOfColumnsAreChainsOfFusedProducts) {
    std::mt19937_64 random(22);
    for (int i = 0; i < 1000; i++) {
        const int64_t rows = i % 4 == 0 ? 1 : 1 + (int64_t)below(random, 20),
                      cols = i % 8 == 0 ? 1 : 1 + (int64_t)below(random, 9);
        SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
        check_columns<float>(Tables<float>(GetParam()).best, false, rows, cols, random);
        check_columns<double>(Tables<double>(GetParam()).best, false, rows, cols, random);
    }
}

TEST_P(ListKernels, ProductsOfHalfAVectorOfColumnsAreChainsOfFusedProducts) {
    const auto f32 = Tables<float>(GetParam()).best, f64 = Tables<double>(GetParam()).best;
    if (f32.list_halves == nullptr) GTEST_SKIP() << "no kernel";
    std::mt19937_64 random(23);
    for (int i = 0; i < 1000; i++) {
        const int64_t rows = 1 + (int64_t)below(random, 40), cols = 1 + (int64_t)below(random, 20);
        SCOPED_TRACE(::testing::Message() << rows << " x " << cols);
        check_columns<float>(f32, true, rows, cols, random);
        check_columns<double>(f64, true, rows, cols, random);
    }
}

// A line of random blocks of A and random lines of B, whose blocks belong to random ones of `sums`.
template <typename T>
void check_line(const tartan_i_kernels &k, int64_t rows, int64_t depth, int64_t cols, bool by_row,
                std::mt19937_64 &random) {
    const int32_t grid_k = 1 + (int32_t)below(random, 6), grid_n = 1 + (int32_t)below(random, 6);
    std::vector<int32_t> a_cols, b_cols;
    std::vector<int64_t> pointers{0}, places;
    for (int32_t i = 0; i < grid_k; i++) {
        if (random() % 4) a_cols.push_back(i);
        for (int32_t n = 0; n < grid_n; n++)
            if (random() % 2) b_cols.push_back(n);
        pointers.push_back((int64_t)b_cols.size());
    }
    for (int32_t n = 0; n < grid_n; n++) places.push_back(grid_n - 1 - n);
    std::vector<T> a(a_cols.size() * (size_t)(rows * depth)), b(b_cols.size() * (size_t)(depth * cols)),
        want((size_t)(grid_n * rows * cols));
    fill(a.data(), a.size(), random);
    fill(b.data(), b.size(), random);
    fill(want.data(), want.size(), random);
    Guarded<T> sums(want.size(), below(random, 16));
    std::copy(want.begin(), want.end(), sums.data());
    const int64_t last_depth = 1 + (int64_t)below(random, (size_t)depth);
    const auto element = [by_row](int64_t block, int64_t high, int64_t wide, int64_t i, int64_t j) {
        return (size_t)(block * high * wide + (by_row ? i * wide + j : j * high + i));
    };
    for (size_t i = 0; i < a_cols.size(); i++)
        for (int64_t n = pointers[(size_t)a_cols[i]]; n < pointers[(size_t)a_cols[i] + 1]; n++)
            for (int64_t r = 0; r < rows; r++)
                for (int64_t c = 0; c < cols; c++) {
                    T &sum = want[element(places[(size_t)b_cols[(size_t)n]], rows, cols, r, c)];
                    for (int64_t m = 0; m < (a_cols[i] == grid_k - 1 ? last_depth : depth); m++)
                        sum = std::fma(a[element((int64_t)i, rows, depth, r, m)],
                                       b[element(n, depth, cols, m, c)], sum);
                }
    tartan_i_line_product p = {};
    p.by_row = by_row, p.rows = rows, p.depth = depth, p.cols = cols;
    p.end = (int64_t)a_cols.size();
    p.a_cols = a_cols.data(), p.b_cols = b_cols.data(), p.b_pointers = pointers.data();
    p.last = grid_k - 1, p.last_depth = last_depth;
    p.a = a.data(), p.b = b.data(), p.places = places.data(), p.sums = sums.data();
    k.line_products(&p);
    EXPECT_SAME_BITS(want.size(), want.data(), sums.data());
    EXPECT_TRUE(sums.intact());
}

TEST_P(ListKernels, LinesOfSmallBlocksAreChainsOfFusedProducts) {
    std::mt19937_64 random(24);
    for (int64_t rows = 1; rows <= 5; rows++)
        for (int64_t depth = 1; depth <= 5; depth++)
            for (int64_t cols = 1; cols <= 8; cols++)
                for (bool by_row : {true, false}) {
                    SCOPED_TRACE(::testing::Message() << rows << " x " << depth << " x " << cols
                                                      << (by_row ? " by rows" : " by columns"));
                    for (int i = 0; i < 3; i++) {
                        check_line<float>(Tables<float>(GetParam()).best, rows, depth, cols, by_row, random);
                        check_line<double>(Tables<double>(GetParam()).best, rows, depth, cols, by_row,
                                           random);
                    }
                }
}

} // namespace
