// SPDX-License-Identifier: Apache-2.0
// Rows and columns cut out or selected, and other block sizes, against dense oracles.
#include "structure_support.h"
#include "variable_support.h"

using namespace tartan_test;

namespace {

TEST(Cut, AtAnyElement) {
    std::mt19937_64 random(1);
    for (int n = 0; n < rounds(600); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random);
        int64_t r[] = {below(random, s.rows + 1), below(random, s.rows + 1)},
                c[] = {below(random, s.cols + 1), below(random, s.cols + 1)};
        std::sort(r, r + 2), std::sort(c, c + 2);
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_cut(context, a.get(), r[0], r[1], c[0], c[1], out);
        });
        ASSERT_EQ(r[1] - r[0], b->layout->shape.rows);
        ASSERT_EQ(c[1] - c[0], b->layout->shape.cols);
        expect_from(b.get(), a.get(),
                    [&](int64_t, int64_t &i, int64_t &j) { return i += r[0], j += c[0], true; });
    }
}

TEST(Reblock, KeepsTheElements) {
    std::mt19937_64 random(2);
    for (int n = 0; n < rounds(600); n++) {
        const tartan_shape s = random_shape(random);
        const Matrix a = any_matrix(s, random);
        const int64_t rows = 1 + below(random, n % 10 ? 12 : 256),
                      cols = 1 + below(random, n % 10 ? 12 : 256);
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_reblock(context, a.get(), rows, cols, out);
        });
        expect_from(b.get(), a.get(), [](int64_t, int64_t &, int64_t &) { return true; });
        tartan_layout *layout = nullptr;
        ASSERT_OK(tartan_layout_reblock(a->layout, rows, cols, &layout));
        ASSERT_EQ(1, tartan_layout_equal(layout, b->layout));
        tartan_layout_free(layout);
    }
}

TEST(Select, AnyRowsAndColumnsAnyNumberOfTimes) {
    std::mt19937_64 random(3);
    for (int n = 0; n < rounds(800); n++) {
        tartan_shape s = random_shape(random);
        if (n % 6 == 0) s.block_cols = 1 << below(random, 6), s.cols = below(random, 5 * s.block_cols + 1);
        const Matrix a = any_matrix(s, random);
        auto list = [&](int64_t size) {
            std::vector<int64_t> l((size_t)(size == 0 ? 0 : below(random, 2 * size + 1)));
            for (auto &i : l) i = below(random, size);
            if (n % 4 == 0 && size > 0) {
                l.resize((size_t)size);
                std::iota(l.begin(), l.end(), 0);
                if (n % 8) std::reverse(l.begin(), l.end());
            }
            if (n % 4 == 1) {
                l.resize((size_t)(size + 1) / 2);
                for (size_t i = 0; i < l.size(); i++) l[i] = 2 * (int64_t)i;
            }
            if (n % 4 == 2 && size > 2) { // all but one, so that large blocks are mixed
                l.resize((size_t)size - 1);
                std::iota(l.begin(), l.end(), 0);
                std::transform(l.begin() + size / 3, l.end(), l.begin() + size / 3,
                               [](int64_t i) { return i + 1; });
            }
            l.reserve(1); // not NULL, so that an empty list selects nothing
            return l;
        };
        std::vector<int64_t> rows = list(s.rows), cols = list(s.cols);
        const bool all_rows = n % 5 == 0, all_cols = n % 3 == 0;
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_select(context, a.get(), all_rows ? nullptr : rows.data(),
                                        all_rows ? 0 : (int64_t)rows.size(), all_cols ? nullptr : cols.data(),
                                        all_cols ? 0 : (int64_t)cols.size(), out);
        });
        ASSERT_EQ(all_rows ? s.rows : (int64_t)rows.size(), b->layout->shape.rows);
        ASSERT_EQ(all_cols ? s.cols : (int64_t)cols.size(), b->layout->shape.cols);
        expect_from(b.get(), a.get(), [&](int64_t, int64_t &i, int64_t &j) {
            if (!all_rows) i = rows[(size_t)i];
            if (!all_cols) j = cols[(size_t)j];
            return true;
        });
    }
}

// Rows of few and of many parts, of columns that all are wanted or some, in pieces of one column or two.
TEST(Select, ColumnsInAnyOrder) {
    std::mt19937_64 random(4);
    for (int n = 0; n < rounds(200); n++) {
        const tartan_shape s{1 + below(random, 9), 40 + below(random, 300), 1 + below(random, 3),
                             1 + below(random, 4), 1 + below(random, 2)};
        const Matrix a = random_matrix(s, TARTAN_F64, n % 2, random, n % 3 == 0 ? 0.9 : 0.1);
        const int64_t piece = s.block_cols == 4 && n % 2 ? 2 : 1;
        std::vector<int64_t> pieces((size_t)(s.cols / piece)), cols;
        std::iota(pieces.begin(), pieces.end(), 0);
        std::shuffle(pieces.begin(), pieces.end(), random);
        if (n % 4 > 1) pieces.resize(pieces.size() / 2);
        for (int64_t i : pieces)
            for (int64_t k = 0; k < piece; k++) cols.push_back(i * piece + k);
        std::vector<int64_t> rows((size_t)s.rows);
        for (auto &i : rows) i = below(random, s.rows);
        const bool all_rows = n % 5 < 3;
        const Matrix b = made([&](tartan_context *context, tartan_matrix **out) {
            return tartan_matrix_select(context, a.get(), all_rows ? nullptr : rows.data(),
                                        all_rows ? 0 : s.rows, cols.data(), (int64_t)cols.size(), out);
        });
        ASSERT_EQ(piece, b->layout->shape.block_cols);
        expect_from(b.get(), a.get(), [&](int64_t, int64_t &i, int64_t &j) {
            if (!all_rows) i = rows[(size_t)i];
            j = cols[(size_t)j];
            return true;
        });
    }
}

struct Sizes {
    int64_t rows, cols;
    bool operator==(const Sizes &o) const { return rows == o.rows && cols == o.cols; }
};
std::ostream &operator<<(std::ostream &out, const Sizes &s) {
    return out << s.rows << " x " << s.cols;
}
Sizes sizes_of(const tartan_matrix *m) {
    return {m->layout->shape.block_rows, m->layout->shape.block_cols};
}

std::vector<int64_t> every(int64_t step, int64_t end) {
    std::vector<int64_t> list;
    for (int64_t i = 0; i < end; i += step) list.push_back(i);
    return list;
}

// Blocks after a selection of the same rows and columns.
Sizes selected(const tartan_matrix *m, const std::vector<int64_t> &list) {
    tartan_matrix *out = nullptr;
    const Matrix part = take(tartan_matrix_select(cpu(), m, list.data(), (int64_t)list.size(), list.data(),
                                                  (int64_t)list.size(), &out),
                             out);
    return sizes_of(part.get());
}

TEST(Select, BlocksAreAsLargeAsThePiecesThatRemain) {
    std::mt19937_64 random(5);
    const Matrix two = random_matrix({48, 48, 2, 2, 1}, TARTAN_F64, 0, random, 0.3),
                 four = random_matrix({48, 48, 4, 3, 1}, TARTAN_F64, 0, random, 0.3),
                 large = random_matrix({48, 48, 8, 16, 1}, TARTAN_F64, 0, random, 0.3);
    EXPECT_EQ((Sizes{1, 1}), selected(two.get(), every(2, 48)));
    EXPECT_EQ((Sizes{2, 1}), selected(four.get(), every(2, 48)));
    EXPECT_EQ((Sizes{4, 8}), selected(large.get(), every(2, 48)));
    EXPECT_EQ((Sizes{1, 1}), selected(large.get(), every(3, 48))); // pieces of 3, 3, 2
    EXPECT_EQ((Sizes{1, 1}), selected(large.get(), {9, 2, 30, 5}));
    EXPECT_EQ((Sizes{2, 2}), selected(large.get(), {9, 8, 30, 31})); // in any order within a piece
    EXPECT_EQ((Sizes{3, 3}), selected(large.get(), {1, 3, 5}));      // one piece
    EXPECT_EQ((Sizes{4, 3}), selected(four.get(), {0, 0, 1, 0, 0, 0, 2, 0, 0, 0}));
    std::vector<int64_t> blocks, most = every(1, 48), again;
    for (int64_t i = 0; i < 48; i++) blocks.push_back((i + 32) % 48), again.push_back(i / 16);
    EXPECT_EQ((Sizes{2, 2}), selected(two.get(), blocks)); // whole blocks in another order
    EXPECT_EQ((Sizes{8, 16}), selected(large.get(), blocks));
    EXPECT_EQ((Sizes{8, 16}), selected(large.get(), again)); // rows of one block, longer than a block
    most.erase(most.begin() + 1);
    EXPECT_EQ((Sizes{1, 1}), selected(two.get(), most));
    EXPECT_EQ((Sizes{1, 1}), selected(four.get(), most));
    EXPECT_EQ((Sizes{8, 16}), selected(large.get(), most)); // nearly whole
    most.erase(most.begin() + 20, most.end() - 20);
    for (int64_t i = 0; i < 8; i++) most.push_back(6 * i);
    EXPECT_EQ((Sizes{1, 1}), selected(large.get(), most));
}

TEST(Cut, SmallBlocksAreCutApart) {
    std::mt19937_64 random(6);
    const Matrix small = random_matrix({48, 48, 4, 3, 1}, TARTAN_F64, 0, random, 0.3),
                 large = random_matrix({48, 48, 8, 2, 1}, TARTAN_F64, 0, random, 0.3);
    auto cut = [](const Matrix &m, int64_t row, int64_t col) {
        tartan_matrix *out = nullptr;
        return sizes_of(take(tartan_matrix_cut(cpu(), m.get(), row, 47, col, 46, &out), out).get());
    };
    EXPECT_EQ((Sizes{4, 3}), cut(small, 4, 9));
    EXPECT_EQ((Sizes{2, 1}), cut(small, 2, 4));
    EXPECT_EQ((Sizes{1, 3}), cut(small, 3, 0));
    EXPECT_EQ((Sizes{8, 1}), cut(large, 3, 1));
    tartan_matrix *out = nullptr;
    const std::vector<int64_t> rows = {2, 3, 4, 5, 6};
    const Matrix part = take(tartan_matrix_select(cpu(), small.get(), rows.data(), 5, nullptr, 0, &out), out);
    EXPECT_EQ((Sizes{2, 3}), sizes_of(part.get())); // a list that is a range
}

// Blocks of different sizes: pieces are those of these blocks.
TEST(Select, PiecesOfBlocksOfDifferentSizes) {
    std::mt19937_64 random(7);
    const Layout frame = from_mask({4, 1, 1, 1, 1}, {1, 1, 1, 1});
    const int64_t rows[] = {0, 2, 4, 12, 20}, cols[] = {0, 5};
    tartan_layout *layout = nullptr;
    ASSERT_OK(tartan_layout_with_boundaries(frame.get(), rows, 5, cols, 2, &layout));
    const Layout variable(layout);
    const Dense dense = random_dense(variable->shape, TARTAN_F64, random);
    const Matrix m = from_dense(variable, dense, TARTAN_F64, TARTAN_ROW_MAJOR);
    auto sizes = [&](const std::vector<int64_t> &list) {
        tartan_matrix *out = nullptr;
        return sizes_of(
            take(tartan_matrix_select(cpu(), m.get(), list.data(), (int64_t)list.size(), nullptr, 0, &out),
                 out)
                .get());
    };
    EXPECT_EQ((Sizes{2, 5}), sizes({4, 5, 0, 1, 13, 14}));
    EXPECT_EQ((Sizes{1, 5}), sizes({4, 0, 13}));
    EXPECT_EQ((Sizes{8, 5}), sizes({12, 13, 14, 15, 16, 17, 18, 19, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST(Select, FailsCleanlyWithoutMemory) {
    std::mt19937_64 random(9);
    const Matrix small = random_matrix({9, 9, 4, 4, 1}, TARTAN_F64, 0, random, 0.8),
                 large = random_matrix({17, 17, 8, 8, 1}, TARTAN_F64, 0, random, 0.8);
    const int64_t rows[] = {8, 0, 0}, cols[] = {1, 1}, back[] = {7, 4, 1};
    std::vector<int64_t> most = every(1, 17);
    most.erase(most.begin() + 1);
    const int64_t count = (int64_t)most.size();
    tartan_matrix *out = nullptr;
    { BRUTAL(tartan_matrix_select(cpu(), small.get(), rows, 3, cols, 2, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_select(cpu(), small.get(), rows, 3, back, 3, &out), tartan_matrix_free(out)); }
    { BRUTAL(tartan_matrix_select(cpu(), small.get(), rows, 3, nullptr, 0, &out), tartan_matrix_free(out)); }
    {
        BRUTAL(tartan_matrix_select(cpu(), large.get(), most.data(), count, nullptr, 0, &out),
               tartan_matrix_free(out));
    }
    {
        BRUTAL(tartan_matrix_select(cpu(), large.get(), most.data(), count, cols, 2, &out),
               tartan_matrix_free(out));
    }
    { BRUTAL(tartan_matrix_cut(cpu(), large.get(), 1, 17, 3, 9, &out), tartan_matrix_free(out)); }
}

} // namespace
