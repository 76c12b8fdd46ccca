// SPDX-License-Identifier: Apache-2.0
// Norms of lines on the CPU: near the exact results for all strides and dtypes, the same bits with any threads and instruction set.
#include "feature_sets.h"
#include "strided.h"

#include <cmath>

extern "C" {
#include "backend/cpu.h"
}

namespace {

using namespace tartan_test;

const int32_t kDtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16};

double epsilon(int32_t dtype) {
    return dtype == TARTAN_F64   ? 0x1p-52
           : dtype == TARTAN_F32 ? 0x1p-23
           : dtype == TARTAN_F16 ? 0x1p-10
                                 : 0x1p-7;
}

// A problem of both norms and their gradients.
struct Problem {
    bool centered;
    int32_t dtype, sums;
    int64_t n, lines;
    Strided x, gain, bias, y, stats, y_grad, x_grad, gain_grad, bias_grad;
    bool has_gain, has_bias, has_stats;

    Problem(bool centered_, int32_t dtype_, Shape lines_of, int64_t n_, std::mt19937_64 &random,
            double center = 0.5)
        : centered(centered_), dtype(dtype_), sums(tartan_i_sum_dtype(dtype_)), n(n_),
          lines(elements_of(lines_of)), has_gain(random() % 4 != 0), has_bias(centered_ && random() % 4 != 0),
          has_stats(random() % 4 != 0) {
        Shape shape = lines_of, pairs = lines_of;
        shape.push_back(n);
        if (centered) pairs.push_back(2);
        x = Strided(dtype, shape, random).fill(random, center - 2, center + 2);
        gain = Strided(sums, {n}, random).fill(random);
        bias = Strided(sums, {n}, random).fill(random);
        y = Strided(random() % 3 ? dtype : sums, shape, random);
        stats = Strided(sums, pairs, random);
        y_grad = Strided(random() % 3 ? dtype : sums, shape, random).fill(random);
        x_grad = Strided(random() % 3 ? dtype : sums, shape, random);
        gain_grad = Strided(sums, {n}, random);
        bias_grad = Strided(sums, {n}, random);
    }

    tartan_status norm(const tartan_context *context, const tartan_array *to) {
        tartan_op op = {};
        if (centered) {
            op.layer_norm = {};
            op.layer_norm.x = &x.array, op.layer_norm.y = to, op.layer_norm.epsilon = 1e-3;
            op.layer_norm.gain = has_gain ? &gain.array : nullptr,
            op.layer_norm.bias = has_bias ? &bias.array : nullptr;
            op.layer_norm.stats = has_stats ? &stats.array : nullptr;
            return tartan_i_cpu_layer_norm(context, &op);
        }
        op.rms_norm = {};
        op.rms_norm.x = &x.array, op.rms_norm.y = to, op.rms_norm.epsilon = 1e-3;
        op.rms_norm.gain = has_gain ? &gain.array : nullptr,
        op.rms_norm.stats = has_stats ? &stats.array : nullptr;
        return tartan_i_cpu_rms_norm(context, &op);
    }

    tartan_status gradient(const tartan_context *context, const tartan_array *x_to,
                           const tartan_array *gain_to, const tartan_array *bias_to) {
        tartan_op op = {};
        if (centered) {
            auto &o = op.layer_norm_gradient;
            o = {};
            o.x = &x.array, o.gain = has_gain ? &gain.array : nullptr, o.stats = &stats.array,
            o.y_grad = &y_grad.array;
            o.x_grad = x_to, o.gain_grad = gain_to, o.bias_grad = bias_to;
            return tartan_i_cpu_layer_norm_gradient(context, &op);
        }
        auto &o = op.rms_norm_gradient;
        o = {};
        o.x = &x.array, o.gain = has_gain ? &gain.array : nullptr, o.stats = &stats.array,
        o.y_grad = &y_grad.array;
        o.x_grad = x_to, o.gain_grad = gain_to;
        return tartan_i_cpu_rms_norm_gradient(context, &op);
    }

    double gain_at(int64_t i) const { return has_gain ? gain.get(i) : 1; }
    double center_of(int64_t line) const { return centered ? stats.get(2 * line) : 0; }
    double scale_of(int64_t line) const { return centered ? stats.get(2 * line + 1) : stats.get(line); }
};

void expect_near(double want, double got, int32_t dtype, double allowed, const char *what, int64_t i) {
    EXPECT_LE(std::fabs(want - got),
              epsilon(dtype) * std::fabs(want) / 1.9 + allowed + 1e-7 * (dtype == TARTAN_F16))
        << what << ' ' << i << ": " << got << ", not " << want;
}

void check_norm(Problem &p, const Strided &before, const Strided &y, const Strided &x) {
    const double eps = 20 * (p.sums == TARTAN_F64 ? 0x1p-52 : 0x1p-24 / 20);
    for (int64_t line = 0; line < p.lines; line++) {
        long double center = 0, squares = 0;
        for (int64_t i = 0; i < p.n && p.centered; i++) center += (long double)x.get(line * p.n + i) / p.n;
        for (int64_t i = 0; i < p.n; i++)
            squares += std::pow((long double)x.get(line * p.n + i) - center, 2) / p.n;
        const double scale = (double)(1 / std::sqrt(squares + 1e-3L));
        for (int64_t i = 0; i < p.n; i++) {
            const double z = (double)(x.get(line * p.n + i) - center) * scale;
            const double want = z * p.gain_at(i) + (p.has_bias ? p.bias.get(i) : 0);
            expect_near(want, y.get(line * p.n + i), y.array.dtype, eps * (1 + std::fabs(z)) * 2, "y",
                        line * p.n + i);
        }
        if (!p.has_stats) continue;
        if (p.centered) expect_near((double)center, p.center_of(line), p.sums, eps * 4, "mean", line);
        expect_near(scale, p.scale_of(line), p.sums, eps * scale, "scale", line);
    }
    EXPECT_TRUE(before.only_elements_differ(y));
}

void check_gradient(const Problem &p, const Strided *x_grad, const Strided *gain_grad,
                    const Strided *bias_grad, const Strided &g_of) {
    std::vector<long double> gains((size_t)p.n), biases((size_t)p.n);
    const double eps = p.sums == TARTAN_F64 ? 0x1p-45 : 0x1p-22;
    for (int64_t line = 0; line < p.lines; line++) {
        long double mean_g = 0, mean_gz = 0;
        const long double center = p.center_of(line), scale = p.scale_of(line);
        for (int64_t i = 0; i < p.n; i++) {
            const long double z = (p.x.get(line * p.n + i) - center) * scale,
                              y_grad = g_of.get(line * p.n + i);
            if (p.centered) mean_g += y_grad * p.gain_at(i) / p.n;
            mean_gz += y_grad * p.gain_at(i) * z / p.n;
            gains[(size_t)i] += y_grad * z;
            biases[(size_t)i] += y_grad;
        }
        for (int64_t i = 0; i < p.n && x_grad != nullptr; i++) {
            const long double z = (p.x.get(line * p.n + i) - center) * scale,
                              g = g_of.get(line * p.n + i) * p.gain_at(i);
            expect_near((double)(scale * (g - mean_g - z * mean_gz)), x_grad->get(line * p.n + i),
                        x_grad->array.dtype, eps * (double)scale * (1 + std::fabs((double)z)) * 4, "x_grad",
                        line * p.n + i);
        }
    }
    for (int64_t i = 0; i < p.n; i++) {
        const double allowed = 0x1p-45 * (double)(p.lines + 1) * 8;
        if (gain_grad != nullptr)
            expect_near((double)gains[(size_t)i], gain_grad->get(i), p.sums, allowed, "gain_grad", i);
        if (bias_grad != nullptr)
            expect_near((double)biases[(size_t)i], bias_grad->get(i), p.sums, allowed, "bias_grad", i);
    }
}

class CpuNorms : public ::testing::TestWithParam<int32_t> { // threads
  protected:
    Context context = open_context(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Threads, CpuNorms, ::testing::Values(1, 3));

TEST_P(CpuNorms, AreNearTheExactResults) {
    std::mt19937_64 random(41);
    for (int round = 0; round < rounds(60); round++) {
        SCOPED_TRACE(round);
        const int64_t lengths[] = {0, 1, 2, 3, 16, 17, 64, 100, 257, 1500};
        Problem p(random() % 2, kDtypes[random() % 4], any_shape(random, 4), lengths[random() % 10], random);
        while (p.lines * p.n > 20000) p = Problem(p.centered, p.dtype, any_shape(random, 2), p.n, random);
        const Strided x = p.x;
        const bool in_place = random() % 4 == 0;
        const Strided before = in_place ? p.x : p.y;
        ASSERT_OK(p.norm(context.get(), in_place ? &p.x.array : &p.y.array));
        check_norm(p, before, in_place ? p.x : p.y, x);
        if (in_place) p.x = x;

        p.has_stats = true;
        ASSERT_OK(p.norm(context.get(), &p.y.array));
        const Strided g = p.y_grad, before_x = p.x_grad, before_gain = p.gain_grad, before_bias = p.bias_grad;
        const bool over = random() % 4 == 0, no_x = random() % 5 == 0, no_gain = random() % 5 == 0,
                   no_bias = !p.centered || random() % 5 == 0;
        ASSERT_OK(p.gradient(context.get(),
                             no_x   ? nullptr
                             : over ? &p.y_grad.array
                                    : &p.x_grad.array,
                             no_gain ? nullptr : &p.gain_grad.array, no_bias ? nullptr : &p.bias_grad.array));
        check_gradient(p,
                       no_x   ? nullptr
                       : over ? &p.y_grad
                              : &p.x_grad,
                       no_gain ? nullptr : &p.gain_grad, no_bias ? nullptr : &p.bias_grad, g);
        EXPECT_TRUE(before_x.only_elements_differ(p.x_grad) &&
                    before_gain.only_elements_differ(p.gain_grad) &&
                    before_bias.only_elements_differ(p.bias_grad));
        if (HasFailure()) return;
    }
}

TEST(CpuNormsBits, DoNotDependOnThreadsOrInstructionSets) {
    for (int which = 0; which < 8; which++) {
        std::mt19937_64 random((uint64_t)which);
        Problem p(which % 2, kDtypes[which / 2], which < 4 ? Shape{7, 61} : Shape{300}, which % 3 ? 130 : 700,
                  random);
        p.has_stats = true;
        std::vector<Strided> first;
        for (tartan_i_cpu_features set : feature_sets()) {
            const WithFeatures used(set);
            for (int32_t threads : {1, 2, 3, 7}) {
                const Context context = open_context(threads);
                ASSERT_OK(p.norm(context.get(), &p.y.array));
                ASSERT_OK(p.gradient(context.get(), &p.x_grad.array, &p.gain_grad.array, &p.bias_grad.array));
                const std::vector<Strided> got = {p.y, p.stats, p.x_grad, p.gain_grad, p.bias_grad};
                if (first.empty()) first = got;
                for (size_t i = 0; i < got.size(); i++)
                    ASSERT_TRUE(first[i].same_bits(got[i]))
                        << i << " with " << threads << " threads, " << features_name(set);
            }
        }
    }
}

TEST(CpuNormsEmpty, NoLinesGiveZeroGradients) {
    std::mt19937_64 random(42);
    Problem p(true, TARTAN_F32, {0, 3}, 5, random);
    p.has_stats = true;
    const Context context = open_context(2);
    ASSERT_OK(p.norm(context.get(), &p.y.array));
    ASSERT_OK(p.gradient(context.get(), &p.x_grad.array, &p.gain_grad.array, &p.bias_grad.array));
    for (int64_t i = 0; i < 5; i++) {
        EXPECT_EQ(0, p.gain_grad.get(i));
        EXPECT_EQ(0, p.bias_grad.get(i));
    }
}

TEST(CpuNormsMemory, FailuresWriteNothing) {
    std::mt19937_64 random(43);
    Problem p(true, TARTAN_BF16, {30}, 40, random);
    p.has_stats = true;
    BRUTAL(in_new_context(2,
                          [&](tartan_context *context) {
                              const Strided before[] = {p.x_grad, p.gain_grad};
                              const tartan_status status =
                                  p.gradient(context, &p.x_grad.array, &p.gain_grad.array, nullptr);
                              EXPECT_TRUE(status == TARTAN_OK || (p.x_grad.same_bits(before[0]) &&
                                                                  p.gain_grad.same_bits(before[1])));
                              return status;
                          }),
           (void)0);
}

} // namespace
