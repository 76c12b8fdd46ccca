// SPDX-License-Identifier: Apache-2.0
// Dynamic layouts, and matrices on them, on the device of a backend under test.
#ifndef TARTAN_TESTS_DYNAMIC_H
#define TARTAN_TESTS_DYNAMIC_H

#include "placed.h"

namespace tartan_test {

inline std::vector<uint8_t> some_mask(int64_t positions, std::mt19937_64 &random) {
    const double density = pick(random, {0.0, 0.1, 0.5, 1.0});
    std::vector<uint8_t> mask((size_t)positions);
    for (auto &m : mask)
        m = std::generate_canonical<double, 32>(random) < density ? (uint8_t)(1 + random() % 255) : 0;
    return mask;
}

// A mask in memory of the context's device, or of the host.
class PlacedMask {
  public:
    tartan_array array = {};
    PlacedMask(tartan_context *context, const tartan_shape &shape, const std::vector<uint8_t> &mask,
               bool on_host)
        : bytes_(mask) {
        bytes_.push_back(0);
        const int64_t rows = grid(shape.rows, shape.block_rows), cols = grid(shape.cols, shape.block_cols);
        std::vector<int64_t> lengths = {shape.heads, rows, cols};
        if (shape.heads == 1) lengths.erase(lengths.begin());
        array = array_of(bytes_.data(), TARTAN_U8, lengths);
        if (on_host) return;
        tartan_array numbers = array; // buffers are of numbers
        numbers.dtype = TARTAN_F8E4M3;
        tartan_buffer *raw = nullptr;
        EXPECT_OK(tartan_buffer_from_array(context, &numbers, &raw));
        buffer_.reset(raw);
        EXPECT_OK(tartan_buffer_view(raw, &array));
        array.dtype = TARTAN_U8;
    }

  private:
    std::vector<uint8_t> bytes_;
    Buffer buffer_;
};

// A layout of a mask that is gone when it has been made.
class Dynamic {
  public:
    Layout layout;
    Dynamic(tartan_context *context, const tartan_shape &shape, const std::vector<uint8_t> &mask,
            int64_t capacity, bool on_host)
        : context_(context), shape_(shape) {
        const PlacedMask placed(context, shape, mask, on_host);
        tartan_layout *raw = nullptr;
        EXPECT_OK(tartan_layout_from_device_mask(context, &shape, &placed.array, capacity, &raw));
        layout.reset(raw);
    }
    void update(const std::vector<uint8_t> &mask, bool on_host) {
        const PlacedMask placed(context_, shape_, mask, on_host);
        EXPECT_OK(tartan_layout_update_device_mask(context_, layout.get(), &placed.array));
    }

  private:
    tartan_context *context_;
    tartan_shape shape_;
};

// A matrix on such a layout, around a buffer that has the values of a host matrix first and a mark behind them.
class Values {
  public:
    Matrix matrix;
    Values(tartan_context *context, const Layout &layout, const Matrix &host) : context_(context) {
        const int64_t each = tartan_i_block_elements(host.get()),
                      capacity = tartan_layout_blocks(layout.get());
        first_ = host->layout->blocks * each * tartan_dtype_bytes(host->dtype);
        bytes_.assign((size_t)(capacity * each * tartan_dtype_bytes(host->dtype)) + 1, (char)0xff); // NaN
        if (first_ > 0) memcpy(bytes_.data(), host->values, (size_t)first_);
        array_ = array_of(bytes_.data(), host->dtype,
                          {capacity, host->layout->shape.block_rows, host->layout->shape.block_cols});
        if (host->block_order == TARTAN_COL_MAJOR) array_.strides[1] = 1, array_.strides[2] = array_.shape[1];
        flat_ = array_of(bytes_.data(), TARTAN_F8E4M3, {(int64_t)bytes_.size() - 1});
        tartan_buffer *raw = nullptr;
        EXPECT_OK(tartan_buffer_from_array(context, &flat_, &raw));
        buffer_.reset(raw);
        tartan_array view = {}, values = array_;
        EXPECT_OK(tartan_buffer_view(raw, &view));
        values.data = view.data, values.device_type = view.device_type, values.device_id = view.device_id;
        tartan_matrix *made = nullptr;
        EXPECT_OK(tartan_matrix_wrap(layout.get(), &values, nullptr, nullptr, &made));
        matrix.reset(made);
    }
    void expect_rest_untouched() const {
        std::vector<char> now(bytes_.size());
        tartan_array array = flat_;
        array.data = now.data();
        EXPECT_OK(tartan_buffer_to_array(context_, buffer_.get(), &array));
        for (size_t i = (size_t)first_; i + 1 < now.size(); i++) ASSERT_EQ((char)0xff, now[i]) << i;
    }
    // All values as they were, on an ordinary layout of as many blocks.
    Matrix on_host(const Layout &layout) const {
        tartan_matrix *made = nullptr;
        EXPECT_OK(tartan_matrix_wrap(layout.get(), &array_, nullptr, nullptr, &made));
        return Matrix(made);
    }

  private:
    tartan_context *context_;
    std::vector<char> bytes_;
    tartan_array array_ = {}, flat_ = {};
    int64_t first_ = 0;
    Buffer buffer_;
};

// A matrix on `layout` with the first of the blocks of another one.
inline Matrix first_blocks(const Layout &layout, const Matrix &from) {
    tartan_matrix *made = nullptr;
    EXPECT_OK(tartan_matrix_create(layout.get(), from->dtype, from->block_order, &made));
    const int64_t bytes = layout->blocks * tartan_i_block_elements(made) * tartan_dtype_bytes(from->dtype);
    if (bytes > 0) memcpy(made->values, from->values, (size_t)bytes);
    return Matrix(made);
}

} // namespace tartan_test

#endif
