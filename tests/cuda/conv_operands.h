// SPDX-License-Identifier: Apache-2.0
// Convolutions on a GPU that is not there: operands, and the problems made of them.
#ifndef TARTAN_TEST_CONV_OPERANDS_H
#define TARTAN_TEST_CONV_OPERANDS_H

#include "tune_support.h"

extern "C" {
#include "conv_steps.h"
}

namespace tartan_test {

struct FreeConv {
    void operator()(tartan_conv *conv) const { tartan_conv_free(conv); }
};

// An image [n, channels, spatial...] whose channels are contiguous.
inline tartan_array image(int32_t dtype, std::vector<int64_t> shape) {
    tartan_array a = {};
    a.data = (void *)4096;
    a.dtype = dtype;
    a.ndim = (int32_t)shape.size();
    int64_t stride = shape[1];
    for (int32_t d = a.ndim - 1; d >= 2; d--) {
        a.shape[d] = shape[(size_t)d], a.strides[d] = stride;
        stride *= shape[(size_t)d];
    }
    a.shape[0] = shape[0], a.strides[0] = stride;
    a.shape[1] = shape[1], a.strides[1] = 1;
    return a;
}

// A convolution of 2 images of bf16 and 40 x 30 pixels, and what its operands are.
struct Operands {
    Layout channels;
    std::unique_ptr<tartan_conv, FreeConv> conv;
    tartan_matrix filter = {};
    tartan_array from, to;
    tartan_op_conv op = {};
    bool tf32 = false; // factors of f32 may be rounded

    explicit Operands(tartan_shape shape = {128, 96, 32, 16, 1}, std::string options = "kernel=3x3 padding=1",
                      std::vector<int64_t> size = {40, 30}, double density = 0.5) {
        channels = random_layout(shape, density, 3);
        tartan_conv *made = nullptr;
        EXPECT_OK(tartan_conv_create(channels.get(), options.c_str(), &made));
        conv.reset(made);
        filter.layout = made->layout;
        filter.dtype = TARTAN_BF16;
        filter.block_order = TARTAN_ROW_MAJOR;
        filter.values = (void *)4096;
        std::vector<int64_t> x{2, shape.cols}, y{2, shape.rows}, out(size.size());
        EXPECT_OK(tartan_conv_output_size(made, size.data(), (int64_t)size.size(), out.data(),
                                          (int64_t)out.size()));
        x.insert(x.end(), size.begin(), size.end());
        y.insert(y.end(), out.begin(), out.end());
        from = image(TARTAN_BF16, x), to = image(TARTAN_BF16, y);
        EXPECT_OK(tartan_i_conv_geometry("test", made, size.data(), (int64_t)size.size(), &op.geometry));
        op.function = "test";
        op.conv = made;
        op.filter = &filter;
        op.from = &from, op.to = &to;
    }
    void set_dtype(int32_t dtype) { filter.dtype = from.dtype = to.dtype = dtype; }
    // The pass back.
    void turn() {
        std::swap(from, to);
        op.adjoint = true;
    }
    // It points to the operands.
    tartan_cuda_conv problem() const && = delete;
    tartan_cuda_conv problem() const & {
        const tartan_context context = {};
        tartan_cuda_conv p;
        EXPECT_OK(tartan_cuda_conv_of(&tartan_i_host, &context, &op, &p));
        p.tf32 = tf32;
        return p;
    }
    tartan_cuda_conv_form form() const {
        const tartan_cuda_conv p = problem();
        return tartan_cuda_conv_form_of(&p);
    }
    Asked<tartan_cuda_conv> asked() const && = delete;
    Asked<tartan_cuda_conv> asked() const & {
        Asked<tartan_cuda_conv> a(tartan_cuda_kernels_of(TARTAN_OP_CONV));
        a.p = problem();
        return a;
    }
};

} // namespace tartan_test

#endif
