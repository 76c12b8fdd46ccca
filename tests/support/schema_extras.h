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

inline std::vector<int64_t> edge_classes_of(const ConvHandle &conv, int64_t in, int64_t out) {
    std::vector<int64_t> classes((size_t)out);
    EXPECT_OK(tartan_conv_edge_classes(conv.get(), &in, 1, classes.data(), out));
    return classes;
}

// gain and bias have a row for each edge class of the convolution, x is its result.
inline void edge_classes(Case &c) {
    if (c.conv == nullptr) return;
    const int64_t in = 5;
    int64_t out = 0, classes = 0;
    EXPECT_OK(tartan_conv_output_size(c.conv.get(), &in, 1, &out, 1));
    for (const int64_t e : edge_classes_of(c.conv, in, out)) classes = std::max(classes, e + 1);
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
    int64_t batch = std::min<int64_t>(c.sizes(c.find("q"), 0)[0], 3);
    int64_t heads = std::min<int64_t>(c.sizes(c.find("q"), 1)[0], 4);
    const bool by_batch = (" " + c.options + " ").find(" by_batch=1 ") != std::string::npos;
    if (by_batch && l->shape.heads > 1)
        batch = l->shape.heads;
    else if (l->shape.heads > 1 || heads == 0)
        heads = l->shape.heads;
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

// Images of one dimension that belong to the convolution, windows of them, and gain and bias for its output channels.
inline void convolution(Case &c) {
    const int x = c.find("x"), y_grad = c.find("y_grad"), gain = c.find("gain"), active = c.find("active");
    const int first = x >= 0 ? x : y_grad;
    const int64_t n = c.sizes(first, 0)[0], in = tartan_conv_in_channels(c.conv.get()),
                  out = tartan_conv_out_channels(c.conv.get()),
                  length = c.sizes(first, 2).empty() ? 5 : std::max<int64_t>(c.sizes(first, 2).back(), 1);
    c.set_sizes(first, 1, {x >= 0 ? in : out});
    c.set_sizes(first, 2, {length});
    if (c.find("y") >= 0) c.set_shape(c.find("y"), {n, out, length});
    if (x >= 0 && y_grad >= 0) c.set_shape(y_grad, {n, out, length});
    if (c.find("x_grad") >= 0) c.set_shape(c.find("x_grad"), {n, in, length});
    if (gain >= 0) {
        int64_t classes = 1;
        for (const int64_t e : edge_classes_of(c.conv, length, length)) classes = std::max(classes, e + 1);
        for (const int i : {gain, c.find("bias")})
            c.set_shape(i, c.wish.extras ? std::vector<int64_t>{classes, out} : std::vector<int64_t>{out});
        if (c.wish.extras && c.wish.seed % 2 == 1) c.options += " add=1";
    }
    if (n == 0) c.leave_out(active);
    if (!c.is_given(active)) return;
    c.windows = "size=2,stride=3,offset=-1";
    c.give_layout(active, random_layout({1, 1 + length / 3, 1, 1, n}, c.density(), c.wish.seed));
}

// Images of two dimensions, and blocks for windows of them.
inline void window(Case &c) {
    const int image = c.find("x") >= 0   ? c.find("x")
                      : c.find("y") >= 0 ? c.find("y")
                                         : c.find("y_grad"),
              blocks = c.find("blocks") >= 0 ? c.find("blocks") : c.find("blocks_grad"),
              base = c.find("base");
    std::vector<int64_t> size = c.sizes(image, 2);
    size.resize(2, 4);
    const int64_t n = std::max<int64_t>(c.sizes(image, 0)[0], 1);
    c.set_sizes(image, 0, {n});
    c.set_sizes(image, 2, size);
    const bool scatters = base >= 0 || c.find("base_grad") >= 0,
               adds = scatters && c.is_given(blocks) && c.wish.random && c.wish.seed % 2 == 1;
    if (base >= 0 && c.wish.outputs) c.choose(base, true); // a second call gives the same
    if (base >= 0 && c.has_option("add")) c.choose(blocks, true);
    if (adds && !c.has_option("add")) c.options += " add=1";
    c.windows = adds ? "size=3,stride=2,count=2" : "size=3,offset=-1,count=2";
    c.give_layout(c.find("active"), random_layout({2, 2, 1, 1, n}, c.density(), c.wish.seed));
    c.set_shape(blocks,
                {((tartan_layout *)c.given[(size_t)c.find("active")])->blocks, c.sizes(image, 1)[0], 3, 3});
}

// Three convolutions that follow each other, images of one dimension and windows of them.
inline void residual(Case &c) {
    const int x = c.find("x");
    const int64_t channels = 4, between = 6;
    std::vector<int64_t> size = c.sizes(x, 2);
    const int64_t length = size.empty() || size.back() == 0 ? 5 : size.back(),
                  n = std::max<int64_t>(c.sizes(x, 0)[0], 1);
    c.set_sizes(x, 0, {n});
    c.set_sizes(x, 1, {channels});
    c.set_sizes(x, 2, {length});
    c.set_sizes(c.find("reduce_gain"), 0, {between});
    c.set_sizes(c.find("spatial_gain"), 0, {between});
    c.set_sizes(c.find("expand_gain"), 0, {channels});
    const auto part = [&](const std::string &name, Layout layout, const char *options) {
        const int conv = c.find(name);
        c.give_conv(conv, make_conv(layout, options));
        c.give_matrix(conv + 1, c.new_matrix(((tartan_conv *)c.given[(size_t)conv])->layout, c.wish.dtype,
                                             TARTAN_ROW_MAJOR));
    };
    part("reduce", random_layout({between, channels, 2, 2, 1}, c.density(), c.wish.seed), "kernel=1");
    part("spatial", random_layout({between, between, 2, 2, 1}, c.density(), c.wish.seed),
         "kernel=3 padding=same");
    // Half of the outputs have no block, and are negative where all numbers are.
    const uint8_t some = c.density() > 0;
    part("expand", from_mask({channels, between, 2, 2, 1}, {some, 0, some, 0, 0, 0}), "kernel=1");
    if (c.is_given(c.find("x_gain")) || c.is_given(c.find("x_bias"))) c.options += " preactivate=1";
    c.windows = "size=1,stride=3";
    c.give_layout(c.find("active"), random_layout({1, 1 + length / 3, 1, 1, n}, c.density(), c.wish.seed));
}

// Factors that fit the layout, on the side and in the form that the options name.
inline void sparse_times_dense(Case &c) {
    const tartan_shape &s = c.layout->shape;
    if (c.wish.random && c.wish.seed % 3 == 1 && !c.has_option("side")) c.options += " side=right";
    if (c.wish.random && c.wish.seed % 5 > 2 && !c.has_option("transpose")) c.options += " transpose=1";
    const bool transposed = c.options.find("transpose=1") != std::string::npos;
    const int64_t rows = transposed ? s.cols : s.rows, cols = transposed ? s.rows : s.cols,
                  n = c.wish.random ? pick<int64_t>(c.random(), {0, 1, 3, 17}) : 5;
    std::vector<int64_t> b, out;
    if (c.wish.random && c.wish.seed % 2 == 0) b = {2};
    if (s.heads > 1) b.push_back(s.heads);
    out = b;
    const bool right = c.options.find("side=right") != std::string::npos;
    b.insert(b.end(), {right ? n : cols, right ? rows : n});
    out.insert(out.end(), {right ? n : rows, right ? cols : n});
    c.set_shape(c.find("b"), b);
    c.set_shape(c.find("c") >= 0 ? c.find("c") : c.find("c_grad"), out);
}

inline void sampled_product(Case &c) {
    const tartan_shape &s = c.layout->shape;
    const int64_t k = c.wish.random ? pick<int64_t>(c.random(), {0, 1, 3, 17}) : 5;
    std::vector<int64_t> x, y;
    if (c.wish.random && c.wish.seed % 2 == 0) x = {2};
    if (s.heads > 1) x.push_back(s.heads);
    y = x;
    x.insert(x.end(), {s.rows, k});
    y.insert(y.end(), {k, s.cols});
    c.set_shape(c.find("x"), x);
    c.set_shape(c.find("y"), y);
    c.set_shape(c.find("gates"), {c.layout->blocks});
}

inline void scores_of_blocks(Case &c) {
    const auto size = [&](int64_t usual) {
        return c.wish.random ? pick<int64_t>(c.random(), {0, 1, 5, 17}) : usual * c.wish.scale;
    };
    const int64_t m = size(11), k = size(5), n = size(9);
    c.list = {4, 3};
    c.set_shape(c.find("x"), {m, k});
    c.set_shape(c.find("y"), {k, n});
    c.set_shape(c.find("score"), {(m + 3) / 4, (n + 2) / 3});
}

// Gates and rates have a number for each slice of the parameters, whose shape is {2, 3}, or none.
inline void slices(Case &c) {
    for (const char *name : {"gates", "rates"})
        if (c.find(name) >= 0) c.set_shape(c.find(name), {c.wish.random && c.wish.seed % 3 == 0 ? 0 : 2});
    for (const char *name : {"mean_scales", "square_scales", "velocity_scales"}) // of moments of 8 bits
        if (c.find(name) >= 0) c.set_shape(c.find(name), {2});
}

// Lines have whole segments, and each of these its statistics.
inline void parts_of_lines(Case &c) {
    const size_t at = c.options.find("segments=");
    const int64_t segments = at == std::string::npos ? 1 : std::stoll(c.options.substr(at + 9));
    const bool centred = std::string(c.schema.name).find("layer") != std::string::npos;
    if (c.sizes(0, 1)[0] % segments != 0) c.set_sizes(0, 1, {20 * c.wish.scale});
    std::vector<int64_t> stats = c.sizes(0, 0);
    stats.push_back(segments);
    if (centred) stats.push_back(2);
    c.set_shape(c.find("stats"), stats);
}

// A gain for each row or column of each head.
inline void gains_of_lines(Case &c) {
    const tartan_shape &s = c.layout->shape;
    const int64_t lines = c.options.find("each=column") == std::string::npos ? s.rows : s.cols;
    const std::vector<int64_t> shape =
        s.heads > 1 ? std::vector<int64_t>{s.heads, lines} : std::vector<int64_t>{lines};
    for (const char *name : {"gain", "gain_grad"})
        if (c.find(name) >= 0) c.set_shape(c.find(name), shape);
}

// Means of the rows and columns of parameters, whose shape is {2, 3}.
inline void means_of_matrices(Case &c) {
    c.set_shape(c.find("row_squares"), {2});
    c.set_shape(c.find("col_squares"), {3});
}

// Labels are classes, or left out where there are none.
inline void labels_of_lines(Case &c) {
    if (c.wish.random && c.wish.seed % 3 == 1 && !c.has_option("base")) c.options += " base=1";
    const int64_t n = c.sizes(0, 1)[0], base = c.has_option("base") ? 1 : 0;
    c.set_limit(c.find("labels"), n > 0 ? n : 1);
    if (n == 0) c.options += " ignore_index=" + std::to_string(base);
}

// The weights of a layer have one head, and their rows are classes.
inline void layer_of_classes(Case &c) {
    const int w = c.find("w");
    tartan_shape shape = c.matrix(w)->layout->shape;
    if (shape.heads > 1) {
        shape.heads = 1;
        Layout made = random_layout(shape, c.density(), c.wish.seed);
        tartan_layout *const one = made.get();
        c.give_layout(w, std::move(made));
        for (const int i : {w, c.find("w_slope"), c.find("w_grad")})
            if (i >= 0 && c.matrix(i) != nullptr)
                c.give_matrix(i, c.new_matrix(one, c.matrix(i)->dtype, TARTAN_ROW_MAJOR));
    }
    if (c.wish.random && c.wish.seed % 3 == 1 && !c.has_option("base")) c.options += " base=1";
    c.set_limit(c.find("labels"), std::max<int64_t>(shape.rows, 1));
    if (shape.rows == 0) c.options += c.has_option("base") ? " ignore_index=1" : " ignore_index=0";
}

// Indices are rows, or padding where there are none.
inline void rows_of_a_table(Case &c) {
    if (c.wish.random && c.wish.seed % 3 == 1 && !c.has_option("base")) c.options += " base=1";
    const int64_t rows = c.sizes(0, 0)[0], base = c.has_option("base") ? 1 : 0;
    const int64_t sure = c.wish.random ? rows : rows - 1; // tests take a row away
    c.set_limit(c.find("indices"), sure > 0 ? sure : 1);
    if (rows == 0) c.options += " padding_index=" + std::to_string(base);
}

inline int64_t base_of(Case &c) {
    bool has_base = false;
    for (int32_t i = 0; i < c.schema.noptions; i++)
        has_base = has_base || std::string(c.schema.options[i].name) == "base";
    if (has_base && c.wish.random && c.wish.seed % 3 == 1 && !c.has_option("base")) c.options += " base=1";
    return c.has_option("base") ? 1 : 0;
}

// Lines have numbers, and k is not more than these.
inline void some_of_lines(Case &c) {
    const int64_t n = std::max<int64_t>(c.sizes(0, 1)[0], 1);
    c.set_sizes(0, 1, {n});
    base_of(c);
    if (c.find("k") < 0 && !c.has_option("k") && std::string(c.schema.name) != "reduce_max")
        c.options += " k=" + std::to_string(c.wish.random ? 1 + (int64_t)below(c.random(), (size_t)n)
                                                          : std::min<int64_t>(n, 2));
}

inline void largest_of_lines(Case &c) {
    some_of_lines(c);
    std::vector<int64_t> shape = c.sizes(0, 0);
    const size_t at = c.options.find("k=");
    shape.push_back(std::stoll(c.options.substr(at + 2)));
    c.set_shape(c.find("values"), shape);
    c.set_shape(c.find("indices"), shape);
}

// Indices are places in lines.
inline void places_in_lines(Case &c) {
    const int64_t n = std::max<int64_t>(c.sizes(0, 1)[0], 1),
                  sure = c.wish.random || n == 1 ? n : n - 1; // tests take one away
    base_of(c);
    c.set_sizes(0, 1, {n});
    const int indices = c.find("indices") >= 0 ? c.find("indices") : c.find("last");
    if (std::string(c.schema.name) != "top_k_gradient") return c.set_limit(indices, sure);
    c.set_sizes(indices, 1, {std::min(c.sizes(indices, 1)[0], sure)});
    c.set_distinct(indices, sure);
}

// Indices are rows, each once; a gradient of products has both factors.
inline void rows_by_a_map(Case &c) {
    const int indices = c.find("indices");
    const int64_t ids = c.sizes(indices, 0)[0], rows = ids + (int64_t)(c.wish.seed % 3);
    base_of(c);
    if (c.wish.random && !c.has_option("combine"))
        c.options += pick<const char *>(c.random(), {"", " combine=add", " combine=multiply"});
    c.set_sizes(0, 0, {rows});
    if (c.options.find("multiply") != std::string::npos) {
        c.choose(c.find("y"), true);
        c.choose(c.find("x"), true);
    }
    c.set_distinct(indices, rows);
}

// Segments share all entries, which are different items.
inline void segments_of_items(Case &c) {
    const int order = c.find("order"), ends = c.find("ends");
    const int64_t entries = c.sizes(order, 0)[0], count = entries + (int64_t)(c.wish.seed % 3),
                  segments = std::max<int64_t>(c.sizes(ends, 0)[0], entries > 0 ? 1 : 0);
    base_of(c);
    c.set_sizes(c.find("values"), 0, {count});
    c.set_sizes(ends, 0, {segments});
    c.set_distinct(order, count);
    c.set_counts(ends, entries);
}

inline const Extra extras[] = {
    {"add_layer_norm", true, parts_of_lines},
    {"add_layer_norm_gradient", true, parts_of_lines},
    {"add_rms_norm", true, parts_of_lines},
    {"add_rms_norm_gradient", true, parts_of_lines},
    {"weight_normalize", true, gains_of_lines},
    {"weight_normalize_gradient", true, gains_of_lines},
    {"top_k", true, largest_of_lines},
    {"top_k_gradient", true, places_in_lines},
    {"top_k_softmax", true, some_of_lines},
    {"rectified_top_k", true, some_of_lines},
    {"rectified_top_k_gradient", true, places_in_lines},
    {"reduce_max", true, some_of_lines},
    {"reduce_max_gradient", true, places_in_lines},
    {"take_along", true, places_in_lines},
    {"take_along_gradient", true, places_in_lines},
    {"scatter_rows", true, rows_by_a_map},
    {"scatter_rows_gradient", true, rows_by_a_map},
    {"segment_sum", true, segments_of_items},
    {"segment_sum_gradient", true, segments_of_items},
    {"embedding", true, rows_of_a_table},
    {"embedding_gradient", true, rows_of_a_table},
    {"cross_entropy", true, labels_of_lines},
    {"cross_entropy_gradient", true, labels_of_lines},
    {"linear_cross_entropy", true, layer_of_classes},
    {"linear_cross_entropy_gradient", true, layer_of_classes},
    {"conv_forward", true, convolution},
    {"conv_input_gradient", true, convolution},
    {"conv_filter_gradient", true, convolution},
    {"window_gather", true, window},
    {"window_scatter", true, window},
    {"residual_forward", true, residual},
    {"window_gather_gradient", true, window},
    {"window_scatter_gradient", true, window},
    {"spmm", true, sparse_times_dense},
    {"spmm_gradient", true, sparse_times_dense},
    {"sddmm", true, sampled_product},
    {"sddmm_gradient", true, sampled_product},
    {"growth_score", true, scores_of_blocks},
    {"adam", true, slices},
    {"sgd", true, slices},
    {"lion", true, slices},
    {"adafactor", true, means_of_matrices},
    {"exponential_average", true, slices},
    {"group_lasso", true, slices},
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
