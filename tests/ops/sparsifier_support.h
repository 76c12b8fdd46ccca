// SPDX-License-Identifier: Apache-2.0
// What the tests of sparsifiers share: a model of a few weights whose "training" is a function of the step.
#ifndef TARTAN_TESTS_OPS_SPARSIFIER_SUPPORT_H
#define TARTAN_TESTS_OPS_SPARSIFIER_SUPPORT_H

#include <cstring>

#include "support.h"

namespace tartan_test {

struct FreeSparsifier {
    void operator()(tartan_sparsifier *p) const { tartan_sparsifier_free(p); }
};
using Sparsifier = std::unique_ptr<tartan_sparsifier, FreeSparsifier>;

inline Sparsifier sparsifier_of(const char *options, const std::vector<const tartan_layout *> &layouts) {
    tartan_sparsifier *raw = nullptr;
    EXPECT_OK(tartan_sparsifier_create(options, &raw));
    for (const tartan_layout *layout : layouts) EXPECT_OK(tartan_sparsifier_add(raw, layout));
    return Sparsifier(raw);
}

inline Matrix zeros_on(tartan_layout *layout, int32_t dtype = TARTAN_F64) {
    tartan_matrix *out = nullptr;
    EXPECT_OK(tartan_matrix_create(layout, dtype, TARTAN_ROW_MAJOR, &out));
    return Matrix(out);
}
inline Matrix normal_on(tartan_layout *layout, int64_t seed, int32_t dtype = TARTAN_F64) {
    Matrix m = zeros_on(layout, dtype);
    EXPECT_OK(tartan_matrix_fill_normal(cpu(), m.get(), 1, seed));
    return m;
}
inline Layout layout_of(const tartan_matrix *m) {
    tartan_layout *out = nullptr;
    EXPECT_OK(tartan_matrix_get_layout(m, &out));
    return Layout(out);
}
inline Layout layout_of(const tartan_sparsifier *s, int64_t i = 0) {
    tartan_layout *out = nullptr;
    EXPECT_OK(tartan_sparsifier_get_layout(s, i, &out));
    return Layout(out);
}
inline std::vector<double> values_of(tartan_matrix *m) {
    tartan_array view;
    EXPECT_OK(tartan_matrix_values(m, &view));
    const double *first = static_cast<const double *>(view.data);
    return {first, first + view.shape[0] * view.shape[1] * view.shape[2]};
}
// All elements but the padding, of a matrix of one head or more.
inline std::vector<double> dense_of(const tartan_matrix *m) {
    const Layout l = layout_of(m);
    const int64_t heads = tartan_layout_heads(l.get());
    const int64_t shape[3] = {heads, tartan_layout_rows(l.get()), tartan_layout_cols(l.get())};
    std::vector<double> out((size_t)(shape[0] * shape[1] * shape[2]));
    tartan_array view;
    EXPECT_OK(tartan_array_init(out.data(), TARTAN_F64, heads > 1 ? 3 : 2, heads > 1 ? shape : shape + 1,
                                nullptr, &view));
    EXPECT_OK(tartan_matrix_to_dense(m, &view));
    return out;
}
inline Matrix projected(const tartan_matrix *m, tartan_layout *layout) {
    tartan_matrix *out = nullptr;
    EXPECT_OK(tartan_matrix_project(cpu(), m, layout, &out));
    return Matrix(out);
}
inline std::vector<double> norms_of(const tartan_matrix *m, int32_t norm = TARTAN_NORM_L2) {
    std::vector<double> out((size_t)tartan_layout_blocks(layout_of(m).get()));
    EXPECT_OK(tartan_matrix_block_norms(cpu(), m, norm, out.data(), (int64_t)out.size()));
    return out;
}
inline Layout evolved(const tartan_layout *layout, const std::vector<double> &scores,
                      const std::vector<double> &growth, int64_t step, const char *schedule) {
    tartan_layout *out = nullptr;
    EXPECT_OK(tartan_layout_evolve(layout, scores.data(), (int64_t)scores.size(),
                                   growth.empty() ? nullptr : growth.data(), (int64_t)growth.size(), step,
                                   schedule, &out));
    return Layout(out);
}

// What a step of an optimiser would do: every stored value changes, by where it is and by the step.
inline void train(tartan_matrix *m, int64_t step, double size = 1) {
    tartan_array view;
    ASSERT_OK(tartan_matrix_values(m, &view));
    double *x = static_cast<double *>(view.data);
    const std::vector<double> more =
        random_values((size_t)(view.shape[0] * view.shape[1] * view.shape[2]), (uint64_t)step, -size, size);
    for (size_t i = 0; i < more.size(); i++) x[i] = 0.9 * x[i] + more[i];
}

// One weight with two moments, as matrices that their owner may replace.
struct Trained {
    tartan_matrix *parts[3];
    explicit Trained(tartan_layout *layout, int64_t seed = 1)
        : parts{normal_on(layout, seed).release(), zeros_on(layout).release(), zeros_on(layout).release()} {}
    Trained(tartan_matrix *w, tartan_matrix *m, tartan_matrix *v) : parts{w, m, v} {}
    Trained(const Trained &) = delete;
    ~Trained() {
        for (tartan_matrix *m : parts) tartan_matrix_free(m);
    }
    void learn(int64_t step) {
        for (int i = 0; i < 3; i++) train(parts[i], 10 * step + i);
    }
    bool operator==(const Trained &other) const {
        for (int i = 0; i < 3; i++)
            if (!tartan_layout_equal(layout_of(parts[i]).get(), layout_of(other.parts[i]).get()) ||
                dense_of(parts[i]) != dense_of(other.parts[i]))
                return false;
        return true;
    }
};

// Growth of a step, [grid] numbers.
inline std::vector<double> growth_of(const tartan_layout *l, int64_t step) {
    return random_values(
        (size_t)(tartan_layout_heads(l) * tartan_layout_grid_rows(l) * tartan_layout_grid_cols(l)),
        (uint64_t)(7000 + step), 0, 1);
}

} // namespace tartan_test

#endif
