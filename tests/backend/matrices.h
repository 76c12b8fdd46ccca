// SPDX-License-Identifier: Apache-2.0
// Random matrices of every dtype, block order and kind of shape, for tests that compare a backend with the CPU.
#ifndef TARTAN_TESTS_MATRICES_H
#define TARTAN_TESTS_MATRICES_H

#include "placed.h"

#include <functional>

namespace tartan_test {

const int32_t kAll[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3, TARTAN_F8E5M2};

class OnMatrices : public OnBackend {
  protected:
    std::mt19937_64 random{1};

    // Small and large blocks, aligned and odd ones, one line, ragged or not, or of different sizes if they may be.
    tartan_shape shape_of(int n, bool may_vary = true) {
        const std::pair<int, int> blocks[] = {{1, 1},   {3, 5},   {8, 8},    {16, 16}, {7, 2},
                                              {32, 32}, {64, 64}, {128, 64}, {1, 24},  {40, 33}};
        const auto block = blocks[n % 10];
        const int64_t rows = 1 + (int64_t)below(random, 5), cols = 1 + (int64_t)below(random, 5);
        const bool ragged = random() % 2;
        row_bounds_.clear(), col_bounds_.clear();
        if (may_vary && random() % 4 == 0) {
            row_bounds_ = random_bounds(random, rows, block.first);
            col_bounds_ = random_bounds(random, cols, block.second);
            const Layout grid = random_layout({rows, cols, 1, 1, pick<int64_t>(random, {1, 1, 2})}, 1, 1);
            return with_boundaries(grid, row_bounds_, col_bounds_)->shape;
        }
        return {rows * block.first - (ragged ? (int64_t)below(random, (size_t)block.first) : 0),
                cols * block.second - (ragged ? (int64_t)below(random, (size_t)block.second) : 0),
                block.first, block.second, pick<int64_t>(random, {1, 1, 2})};
    }
    // Of the last shape.
    Layout some_layout(const tartan_shape &shape, double density) {
        if (row_bounds_.empty()) return random_layout(shape, density, random());
        const int64_t rows = (int64_t)row_bounds_.size() - 1, cols = (int64_t)col_bounds_.size() - 1;
        return with_boundaries(random_layout({rows, cols, 1, 1, shape.heads}, density, random()), row_bounds_,
                               col_bounds_);
    }
    Matrix some_matrix(int dtype, const tartan_shape &shape, double density = 0.6) {
        return random_matrix(some_layout(shape, density), kAll[dtype % 6], (int32_t)below(random, 2), random);
    }
    // The values with their padding, which to_host would clear.
    std::vector<char> bits_of(const tartan_matrix *m) {
        const int64_t bytes = m->layout->blocks * tartan_i_block_elements(m) * tartan_dtype_bytes(m->dtype);
        std::vector<char> got((size_t)bytes);
        if (bytes == 0) return got;
        tartan_array out = array_of(got.data(), TARTAN_F8E4M3, {bytes}), view = out;
        view.data = m->values, view.device_type = m->device_type, view.device_id = m->device_id;
        if (m->device_type == TARTAN_CPU) {
            std::memcpy(got.data(), m->values, (size_t)bytes);
            return got;
        }
        tartan_buffer *raw = nullptr;
        EXPECT_OK(tartan_buffer_from_array(context.get(), &view, &raw));
        const Buffer buffer(raw);
        EXPECT_OK(tartan_buffer_to_array(context.get(), raw, &out));
        return got;
    }

  private:
    std::vector<int64_t> row_bounds_, col_bounds_; // of the last shape; empty: blocks have one size
};

} // namespace tartan_test

#endif
