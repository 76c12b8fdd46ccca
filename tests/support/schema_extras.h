// SPDX-License-Identifier: Apache-2.0
// What the rules of an operation can't say of its operands, because a function of lib/ops checks it: rows for Case.
#ifndef TARTAN_TESTS_SCHEMA_EXTRAS_H
#define TARTAN_TESTS_SCHEMA_EXTRAS_H

#include "schema_case.h"

namespace tartan_test {

struct Extra {
    const char *operation;
    bool always;          // or only if the test wishes it
    void (*make)(Case &); // after handles were made, before arrays are
};

// gain has a number for each output channel.
inline void one_for_each_output_channel(Case &c) {
    c.set_sizes(c.find("gain"), 0, {tartan_conv_out_channels(c.conv.get())});
}

// gain and bias have a row for each edge class of the convolution, x is its result.
inline void edge_classes(Case &c) {
    if (c.conv == nullptr) return;
    const int64_t in = 5;
    int64_t out = 0, classes = 0;
    EXPECT_OK(tartan_conv_output_size(c.conv.get(), &in, 1, &out, 1));
    std::vector<int64_t> of((size_t)out);
    EXPECT_OK(tartan_conv_edge_classes(c.conv.get(), &in, 1, of.data(), out));
    for (const int64_t e : of) classes = std::max(classes, e + 1);
    c.list = {in};
    c.set_sizes(c.find("x"), 1, {tartan_conv_out_channels(c.conv.get())});
    c.set_sizes(c.find("x"), 2, {out});
    for (const char *name : {"gain", "bias", "gain_grad", "bias_grad"}) {
        const int i = c.find(name);
        if (i < 0) continue;
        c.set_alternative(i, 1);
        c.set_sizes(i, 0, {classes}, 1);
    }
}

// Heads that fit each other and the layout; a bias of the kind that the options name; gradients of what is given. Batches and heads
// are few, also in large cases, so that threads share them in more than one way.
inline void attention(Case &c) {
    const int k = c.find("k"), bias = c.find("bias"), sinks = c.find("sinks"),
              bias_grad = c.find("bias_grad"), sinks_grad = c.find("sinks_grad"),
              out_grad = c.find("out_grad");
    const tartan_layout *l = c.layout.get();
    const int64_t batch = std::min<int64_t>(c.sizes(c.find("q"), 0)[0], 3);
    int64_t heads = std::min<int64_t>(c.sizes(c.find("q"), 1)[0], 4);
    if (l->shape.heads > 1 || heads == 0) heads = l->shape.heads;
    const bool grouped = heads % 2 == 0 && (!c.wish.random || c.random()() % 2 == 0);
    c.set_sizes(c.find("q"), 0, {batch});
    c.set_sizes(c.find("q"), 1, {heads});
    c.set_sizes(k, 1, {grouped ? heads / 2 : heads});
    if (out_grad >= 0) c.set_dtype_of(out_grad, c.find("out"));
    if (bias_grad >= 0) {
        c.choose(sinks, c.is_given(sinks) || !c.is_given(bias) || c.wish.outputs);
        c.choose(bias, c.is_given(bias) || c.wish.outputs);
        c.choose(bias_grad, c.is_given(bias));
        c.choose(sinks_grad, c.is_given(sinks));
    }
    if (!c.is_given(bias)) return;
    c.options += " bias_kind=";
    if (!c.wish.extras) {
        c.options += "slopes";
        return;
    }
    const bool by_distance = c.wish.seed % 4 < 2;
    c.options += by_distance ? "distance" : "block";
    c.set_alternative(bias, 1);
    c.set_sizes(bias, 0, {by_distance || l->shape.heads == 1 ? heads : 1}, 1);
    c.set_sizes(bias, 1, {by_distance ? 7 : l->blocks}, 1);
}

inline const Extra extras[] = {
    {"attention_forward", true, attention},
    {"attention_backward", true, attention},
    {"attention_bias_gradient", true, attention},
    {"conv_normalize", true, one_for_each_output_channel},
    {"conv_normalize_gradient", true, one_for_each_output_channel},
    {"channel_linear", false, edge_classes},
    {"channel_linear_gradient", false, edge_classes},
};

} // namespace tartan_test

#endif
