// SPDX-License-Identifier: Apache-2.0
// What the tests of layouts share: index sets as vectors, random frames, a naive model.
#ifndef TARTAN_TESTS_LAYOUT_LAYOUTS_H
#define TARTAN_TESTS_LAYOUT_LAYOUTS_H

#include <functional>

#include "support.h"

namespace tartan_test {

using Indices = std::vector<int64_t>;
using Mask = std::vector<uint8_t>;

inline tartan_shape square(int64_t n, int64_t heads = 1, int64_t block = 1) {
    return {n * block, n * block, block, block, heads};
}

inline int64_t grid_rows(const tartan_shape &s) {
    return grid(s.rows, s.block_rows);
}
inline int64_t grid_cols(const tartan_shape &s) {
    return grid(s.cols, s.block_cols);
}

inline tartan_shape shape_of(const tartan_layout *l) {
    return {tartan_layout_rows(l), tartan_layout_cols(l), tartan_layout_block_rows(l),
            tartan_layout_block_cols(l), tartan_layout_heads(l)};
}

inline Mask mask_of(const tartan_layout *l) {
    Mask mask((size_t)(tartan_layout_heads(l) * tartan_layout_grid_rows(l) * tartan_layout_grid_cols(l)));
    EXPECT_OK(tartan_layout_get_mask(l, mask.data(), (int64_t)mask.size()));
    return mask;
}
inline Mask mask_of(const Layout &l) {
    return mask_of(l.get());
}

// A mask from a rule on (head, block row, block column).
inline Mask mask_where(const tartan_shape &s, const std::function<bool(int64_t, int64_t, int64_t)> &rule) {
    Mask mask;
    for (int64_t h = 0; h < s.heads; h++)
        for (int64_t i = 0; i < grid_rows(s); i++)
            for (int64_t j = 0; j < grid_cols(s); j++) mask.push_back(rule(h, i, j));
    return mask;
}

struct RowLists {
    Indices pointers, cols;
};
inline RowLists row_lists(const tartan_layout *l) {
    RowLists r{Indices((size_t)(tartan_layout_heads(l) * tartan_layout_grid_rows(l) + 1)),
               Indices((size_t)tartan_layout_blocks(l))};
    EXPECT_OK(tartan_layout_get_row_lists(l, r.pointers.data(), (int64_t)r.pointers.size(), r.cols.data(),
                                          (int64_t)r.cols.size()));
    return r;
}

struct ColLists {
    Indices pointers, rows, ids;
};
inline ColLists col_lists(const tartan_layout *l) {
    size_t blocks = (size_t)tartan_layout_blocks(l);
    ColLists c{Indices((size_t)(tartan_layout_heads(l) * tartan_layout_grid_cols(l) + 1)), Indices(blocks),
               Indices(blocks)};
    EXPECT_OK(tartan_layout_get_col_lists(l, c.pointers.data(), (int64_t)c.pointers.size(), c.rows.data(),
                                          (int64_t)blocks, c.ids.data(), (int64_t)blocks));
    return c;
}

struct Coordinates {
    Indices heads, rows, cols;
};
inline Coordinates coordinates(const tartan_layout *l) {
    size_t n = (size_t)tartan_layout_blocks(l);
    Coordinates c{Indices(n), Indices(n), Indices(n)};
    EXPECT_OK(tartan_layout_get_coordinates(l, c.heads.data(), (int64_t)n, c.rows.data(), (int64_t)n,
                                            c.cols.data(), (int64_t)n));
    return c;
}

inline tartan_status from_coordinates(const tartan_shape &s, const Indices &heads, const Indices &rows,
                                      const Indices &cols, tartan_layout **out) {
    EXPECT_EQ(rows.size(), cols.size());
    return tartan_layout_from_coordinates(
        &s, places_of(heads.empty() ? nullptr : heads.data(), rows.data(), cols.data(), (int64_t)rows.size()),
        out);
}

inline tartan_status try_pattern(const tartan_shape &s, const std::string &name,
                                 const std::string &parameters, tartan_layout **out, int64_t seed = 1) {
    return tartan_layout_from_pattern(&s, name.c_str(), parameters.c_str(), seed, out);
}
inline Layout pattern(const tartan_shape &s, const std::string &name, const std::string &parameters = "",
                      int64_t seed = 1) {
    tartan_layout *layout = nullptr;
    EXPECT_OK(try_pattern(s, name, parameters, &layout, seed));
    return Layout(layout);
}

// A small random frame, often ragged, sometimes empty on a side.
inline tartan_shape random_shape(std::mt19937_64 &random, bool one_head = false) {
    auto draw = [&](int64_t low, int64_t high) {
        return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    return {draw(0, 40), draw(0, 40), draw(1, 9), draw(1, 9), one_head ? 1 : draw(1, 3)};
}

// A random layout in a random frame.
inline Layout any_layout(std::mt19937_64 &random, bool one_head = false) {
    tartan_shape shape = random_shape(random, one_head);
    double density = std::generate_canonical<double, 32>(random);
    return random_layout(shape, density, random());
}

// A handle that is none of Tartan's.
inline tartan_layout *foreign() {
    alignas(64) static char memory[512] = "not a layout";
    return reinterpret_cast<tartan_layout *>(memory);
}

// No function may leave a handle of a failed call behind.
#define EXPECT_NO_LAYOUT(status, part, call)                                                                 \
    do {                                                                                                     \
        tartan_layout *out = reinterpret_cast<tartan_layout *>(8);                                           \
        EXPECT_FAILS(status, part, call);                                                                    \
        EXPECT_EQ(out, nullptr);                                                                             \
    } while (0)

} // namespace tartan_test

#endif
