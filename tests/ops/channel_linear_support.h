// SPDX-License-Identifier: Apache-2.0
// Random problems of tartan_channel_linear.
#ifndef TARTAN_TESTS_CHANNEL_LINEAR_SUPPORT_H
#define TARTAN_TESTS_CHANNEL_LINEAR_SUPPORT_H

#include "channel_linear_calls.h"
#include "conv_support.h"

namespace tartan_test {

struct Linear {
    ConvHandle conv; // or NULL: no edge classes
    std::vector<int64_t> in_size;
    std::vector<int64_t> class_of; // of each position
    int64_t classes = 1;
    Dense x, gain, bias, y, y_grad, x_grad, gain_grad, bias_grad;
    bool has_gain = true, has_bias = true, relu = false, bias_first = false;

    std::string options() const {
        return std::string("relu=") + (relu ? "1" : "0") + " bias_first=" + (bias_first ? "1" : "0");
    }
    const tartan_array *gains() const { return has_gain ? &gain.array : nullptr; }
    const tartan_array *biases() const { return has_bias ? &bias.array : nullptr; }
    tartan_status forward(tartan_context *c, tartan_array *to) const {
        return channel_linear(c, conv.get(), in_size.empty() ? nullptr : in_size.data(),
                              (int64_t)in_size.size(), &x.array, gains(), biases(), options().c_str(), to);
    }
    tartan_status backward(tartan_context *c, tartan_array *to_x, tartan_array *to_gain,
                           tartan_array *to_bias) const {
        return channel_linear_gradient(c, conv.get(), in_size.empty() ? nullptr : in_size.data(),
                                       (int64_t)in_size.size(), &x.array, gains(), biases(), &y_grad.array,
                                       options().c_str(), to_x, to_gain, to_bias);
    }
    int64_t channels() const { return x.array.shape[1]; }
    int64_t positions() const {
        int64_t all = 1;
        for (int32_t d = 2; d < x.array.ndim; d++) all *= x.array.shape[d];
        return all;
    }
    // Row-major index of an element of gain or bias, or of their gradients.
    static int64_t factor_at(const Dense &f, int64_t class_, int64_t c) {
        return f.array.ndim == 2 ? class_ * f.array.shape[1] + c : c;
    }
    // Calls f(element of x, class, channel).
    template <typename F> void each(F f) const {
        for (int64_t i = 0; i < x.elements(); i++) {
            const int64_t p = i % positions();
            f(i, class_of.empty() ? 0 : class_of[(size_t)p], i / positions() % channels());
        }
    }
};

// Random operands. With edges, x is the output of a convolution.
inline Linear make_linear(uint64_t seed, int32_t dtype) {
    std::mt19937_64 random(seed);
    Linear p;
    const int64_t n = pick<int64_t>(random, {1, 2, 3}), channels = pick<int64_t>(random, {1, 3, 8, 17, 300});
    std::vector<int64_t> size;
    const int dims = (int)below(random, 4);
    const bool edges = dims > 0 && random() % 2;
    for (int d = 0; d < dims; d++) size.push_back(1 + (int64_t)below(random, dims == 1 ? 40 : 7));
    if (edges) {
        std::string text = "padding=same kernel=3";
        for (int d = 1; d < dims; d++) text += "x3";
        p.conv = make_conv(random_layout({channels, 5, 1, 1, 1}, 1, 1), text);
        p.in_size = size; // stride 1, so that y has the same
        int64_t all = 1;
        for (const int64_t s : size) all *= s;
        p.class_of.resize((size_t)all);
        EXPECT_OK(tartan_conv_edge_classes(p.conv.get(), size.data(), dims, p.class_of.data(), all));
        for (const int64_t e : p.class_of) p.classes = std::max(p.classes, e + 1);
    }
    const int32_t sums = tartan_i_sum_dtype(dtype), wide = random() % 3 == 0 ? sums : dtype;
    const auto image = [&](int32_t type) {
        return make_image(type, n, channels, size,
                          dims > 0 ? pick<int>(random, {kRows, kChannelsLast, kGaps, kReversed})
                                   : (int)kRows);
    };
    const auto factor = [&] {
        return Dense(sums,
                     edges && random() % 3 ? std::vector<int64_t>{p.classes, channels}
                                           : std::vector<int64_t>{channels},
                     pick(random, {kRows, kGaps, kReversed}));
    };
    p.x = image(dtype), p.y = image(wide), p.y_grad = image(dtype), p.x_grad = image(wide);
    p.gain = factor(), p.bias = factor();
    p.gain_grad = p.gain, p.bias_grad = p.bias;
    p.has_gain = random() % 4, p.has_bias = random() % 4, p.relu = random() % 2, p.bias_first = random() % 2;
    for (Dense *d : {&p.x, &p.y_grad, &p.gain, &p.bias}) d->fill(random, -2, 2);
    return p;
}

// One element as the header says, each step rounded; *inner is what the gain multiplies.
inline double linear(const Linear &p, int64_t i, int64_t class_, int64_t c, double *inner, double *gain) {
    const bool wide = p.gain.array.dtype == TARTAN_F64;
    const double x = p.x.get(i), b = p.has_bias ? p.bias.get(Linear::factor_at(p.bias, class_, c)) : 0;
    *gain = p.has_gain ? p.gain.get(Linear::factor_at(p.gain, class_, c)) : 1;
    const auto r = [&](double v) { return wide ? v : (double)(float)v; };
    *inner = p.bias_first ? r(x + b) : x;
    return p.bias_first ? r(*gain * *inner) : r(r(*gain * *inner) + b);
}

} // namespace tartan_test

#endif
