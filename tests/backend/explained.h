// SPDX-License-Identifier: Apache-2.0
// What operations say of themselves.
#ifndef TARTAN_TESTS_EXPLAINED_H
#define TARTAN_TESTS_EXPLAINED_H

#include "placed.h"

#include <functional>

#define EXPECT_HAS(text, part) EXPECT_NE(std::string::npos, (text).find(part)) << (text)

namespace tartan_test {

// The description of what `call` would do: a JSON array.
inline std::string explained(const std::function<tartan_status()> &call) {
    char *text = nullptr;
    EXPECT_OK(tartan_explain_begin());
    EXPECT_OK(call());
    EXPECT_OK(tartan_explain_end(&text));
    const std::string all = text != nullptr ? text : "";
    tartan_text_free(text);
    return all;
}

// The kernel that the first operation of a description runs, not one of those that it does not choose.
inline std::string kernel_of(const std::string &text) {
    const std::string before = ", \"kernel\": \""; // the others are objects of their own
    const size_t at = text.find(before);
    if (at == std::string::npos) return "";
    const size_t begin = at + before.size();
    return text.substr(begin, text.find('"', begin) - begin);
}

// Zeros in memory of a context's device: [lengths], the last two dimensions in `order`.
class Zeros {
  public:
    tartan_array array = {};
    Zeros(tartan_context *context, int32_t dtype, std::vector<int64_t> lengths, int32_t order) {
        const size_t n = lengths.size();
        const bool by_columns = order == TARTAN_COL_MAJOR;
        if (by_columns) std::swap(lengths[n - 2], lengths[n - 1]);
        tartan_buffer *raw = nullptr;
        EXPECT_OK(tartan_buffer_create(context, dtype, lengths.data(), (int64_t)n, TARTAN_ROW_MAJOR, &raw));
        buffer_.reset(raw);
        EXPECT_OK(tartan_buffer_view(raw, &array));
        if (by_columns) {
            std::swap(array.shape[n - 2], array.shape[n - 1]);
            std::swap(array.strides[n - 2], array.strides[n - 1]);
        }
    }

  private:
    Buffer buffer_;
};

// The operands of a product with a layout, all zeros: a product that can be run, or asked what it would do.
struct Question {
    int32_t side = kLeft, op = kAsIs;
    Zeros values, first, second;
    Matrix matrix;

    static std::vector<int64_t> sizes(const tartan_layout *l, int64_t rows, int64_t cols) {
        const int64_t heads = l->shape.heads;
        return heads > 1 ? std::vector<int64_t>{heads, rows, cols} : std::vector<int64_t>{rows, cols};
    }
    static Question spmm(tartan_context *context, tartan_layout *l, int32_t dtype, int64_t n,
                         int32_t side = 0, int32_t op = 0, int32_t blocks = TARTAN_ROW_MAJOR,
                         int32_t dense = TARTAN_ROW_MAJOR) {
        const bool transposed = (op == kTransposed) == (side == kLeft), left = side == kLeft;
        const int64_t in = transposed ? l->shape.rows : l->shape.cols,
                      out = transposed ? l->shape.cols : l->shape.rows;
        const bool f8 = dtype == TARTAN_F8E4M3 || dtype == TARTAN_F8E5M2;
        return Question(context, l, side, op, blocks, dtype,
                        Zeros(context, dtype, sizes(l, left ? in : n, left ? n : in), dense),
                        Zeros(context, f8 ? (int32_t)TARTAN_BF16 : dtype,
                              sizes(l, left ? out : n, left ? n : out), dense));
    }
    static Question sddmm(tartan_context *context, tartan_layout *l, int32_t dtype, int64_t n,
                          int32_t blocks = TARTAN_ROW_MAJOR, int32_t dense = TARTAN_ROW_MAJOR) {
        return Question(context, l, 0, 0, blocks, dtype,
                        Zeros(context, dtype, sizes(l, l->shape.rows, n), dense),
                        Zeros(context, dtype, sizes(l, n, l->shape.cols), dense));
    }
    tartan_status run_spmm(tartan_context *context) {
        return tartan_spmm(context, matrix.get(), nullptr, &first.array, 1, 0, spmm_options(side, op),
                           &second.array);
    }
    tartan_status run_sddmm(tartan_context *context) {
        return tartan_sddmm(context, &first.array, &second.array, 1, nullptr, 1, 0, matrix.get());
    }

  private:
    Question(tartan_context *context, tartan_layout *l, int32_t side, int32_t op, int32_t blocks,
             int32_t dtype, Zeros first, Zeros second)
        : side(side), op(op),
          values(context, dtype, {l->blocks, l->shape.block_rows, l->shape.block_cols}, blocks),
          first(std::move(first)), second(std::move(second)) {
        tartan_matrix *raw = nullptr;
        EXPECT_OK(tartan_matrix_wrap(l, &values.array, nullptr, nullptr, &raw));
        matrix.reset(raw);
    }
};

inline std::string explain_spmm(tartan_context *context, tartan_layout *l, int32_t dtype, int64_t n,
                                int32_t side = 0, int32_t op = 0, int32_t blocks = 0, int32_t dense = 0) {
    Question q = Question::spmm(context, l, dtype, n, side, op, blocks, dense);
    return explained([&] { return q.run_spmm(context); });
}
inline std::string explain_sddmm(tartan_context *context, tartan_layout *l, int32_t dtype, int64_t n,
                                 int32_t blocks = 0, int32_t dense = 0) {
    Question q = Question::sddmm(context, l, dtype, n, blocks, dense);
    return explained([&] { return q.run_sddmm(context); });
}

} // namespace tartan_test

#endif
