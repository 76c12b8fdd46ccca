// SPDX-License-Identifier: Apache-2.0
// Element-wise functions of arrays on the CPU: the bits of the portable kernel for each element, whatever the strides, dtypes and
// threads; sums of gradients near the exact ones, with one order.
#include "feature_sets.h"
#include "strided.h"

#include <cmath>

extern "C" {
#include "backend/cpu.h"
#include "kernels/points.h"
}

namespace {

using namespace tartan_test;

const int32_t kDtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16};

int32_t any_dtype(std::mt19937_64 &random) {
    return kDtypes[random() % 4];
}
// One whose sums are of the same dtype.
int32_t other_dtype(int32_t dtype, std::mt19937_64 &random) {
    return dtype == TARTAN_F64 ? TARTAN_F64 : kDtypes[1 + random() % 3];
}

// The elements of `x` that meet those of `whole`, as reals.
template <typename T> std::vector<T> gathered(const Strided &x, const Shape &whole) {
    std::vector<T> all((size_t)elements_of(whole));
    for (size_t i = 0; i < all.size(); i++) all[i] = (T)x.get(met_by(whole, x.shape(), (int64_t)i));
    return all;
}

const tartan_i_kernels &portable(int32_t dtype) {
    static tartan_i_kernels narrow, wide;
    static const bool filled =
        (tartan_i_kernels_fill(0, TARTAN_F32, &narrow), tartan_i_kernels_fill(0, TARTAN_F64, &wide), true);
    (void)filled;
    return dtype == TARTAN_F64 ? wide : narrow;
}

// `got` holds the numbers `want`, rounded to its dtype, and was changed nowhere else.
template <typename T>
void expect_values(const Strided &before, const Strided &got, const std::vector<T> &want) {
    Strided expected = before;
    for (size_t i = 0; i < want.size(); i++) expected.set((int64_t)i, (double)want[i]);
    for (size_t i = 0; i < want.size(); i++)
        ASSERT_TRUE(expected.get((int64_t)i) == got.get((int64_t)i) ||
                    (std::isnan(want[i]) && std::isnan(got.get((int64_t)i))))
            << "element " << i << " is " << got.get((int64_t)i) << ", not " << want[i];
    ASSERT_TRUE(before.only_elements_differ(got));
}

class CpuPoints : public ::testing::TestWithParam<int32_t> { // threads
  protected:
    Context context = open_context(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Threads, CpuPoints, ::testing::Values(1, 3));

template <typename T>
void check_value1(const tartan_context *context, int32_t dtype, std::mt19937_64 &random) {
    const Shape shape = any_shape(random, 8);
    const int32_t row = (int32_t)(random() % TARTAN_I_POINT1_ROWS);
    Strided x = Strided(dtype, shape, random).fill(random), y(other_dtype(dtype, random), shape, random);
    const std::vector<T> in = gathered<T>(x, shape);
    std::vector<T> want(in.size());
    portable(dtype).point1[row].value((int64_t)in.size(), 1.5, in.data(), want.data());
    const bool in_place = random() % 4 == 0;
    const Strided before = in_place ? x : y;
    tartan_op op = {};
    op.point1 = {"", row, 1.5, &x.array, in_place ? &x.array : &y.array};
    ASSERT_OK(tartan_i_cpu_point1(context, &op));
    expect_values(before, in_place ? x : y, want);
}

TEST_P(CpuPoints, ValuesOfOneArray) {
    std::mt19937_64 random(31);
    for (int round = 0; round < rounds(250); round++) {
        SCOPED_TRACE(round);
        const int32_t dtype = any_dtype(random);
        dtype == TARTAN_F64 ? check_value1<double>(context.get(), dtype, random)
                            : check_value1<float>(context.get(), dtype, random);
        if (HasFatalFailure()) return;
    }
}

template <typename T>
void check_gradient1(const tartan_context *context, int32_t dtype, std::mt19937_64 &random) {
    const Shape shape = any_shape(random, 5);
    const int32_t row = (int32_t)(random() % TARTAN_I_POINT1_ROWS);
    Strided operands[4];
    for (Strided &one : operands) one = Strided(other_dtype(dtype, random), shape, random).fill(random);
    std::vector<T> in[3];
    for (int i = 0; i < 3; i++) in[i] = gathered<T>(operands[i], shape);
    std::vector<T> want(in[0].size());
    portable(dtype).point1[row].gradient((int64_t)want.size(), 0.5, in[0].data(), in[1].data(), in[2].data(),
                                         want.data());
    const size_t out = random() % 4; // in place of any of them
    const Strided before = operands[out];
    tartan_op op = {};
    op.point1_gradient = {
        "", row, 0.5, &operands[0].array, &operands[1].array, &operands[2].array, &operands[out].array};
    ASSERT_OK(tartan_i_cpu_point1_gradient(context, &op));
    expect_values(before, operands[out], want);
}

TEST_P(CpuPoints, GradientsOfOneArray) {
    std::mt19937_64 random(32);
    for (int round = 0; round < rounds(150); round++) {
        SCOPED_TRACE(round);
        const int32_t dtype = any_dtype(random);
        dtype == TARTAN_F64 ? check_gradient1<double>(context.get(), dtype, random)
                            : check_gradient1<float>(context.get(), dtype, random);
        if (HasFatalFailure()) return;
    }
}

TEST_P(CpuPoints, GradientsNeedOnlyWhatTheyMention) {
    std::mt19937_64 random(33);
    const Shape shape = {7, 30};
    const Strided g = Strided(TARTAN_F32, shape, random).fill(random);
    Strided out(TARTAN_F32, shape, random);
    tartan_op op = {};
    op.point1_gradient = {"", TARTAN_I_POINT1_negative, 0, nullptr, nullptr, &g.array, &out.array};
    ASSERT_OK(tartan_i_cpu_point1_gradient(context.get(), &op));
    for (int64_t i = 0; i < g.size(); i++) EXPECT_EQ(-g.get(i), out.get(i));
}

// Shapes that broadcast to `whole`.
Shape part_of(const Shape &whole, std::mt19937_64 &random) {
    Shape part = whole;
    for (int64_t &length : part)
        if (random() % 3 == 0) length = 1;
    if (random() % 3 == 0) part.erase(part.begin(), part.begin() + (long)(random() % (part.size() + 1)));
    return part;
}
// What the two broadcast to.
Shape both(const Shape &a, const Shape &b) {
    Shape whole(std::max(a.size(), b.size()), 1);
    for (const Shape *one : {&a, &b})
        for (size_t k = 0; k < one->size(); k++)
            if ((*one)[one->size() - 1 - k] != 1) whole[whole.size() - 1 - k] = (*one)[one->size() - 1 - k];
    return whole;
}

struct Pair {
    Strided a, b;
    Shape whole;
    Pair(int32_t dtype, std::mt19937_64 &random) {
        const Shape shape = any_shape(random, 6);
        Shape as = part_of(shape, random), bs = random() % 3 == 0 ? shape : part_of(shape, random);
        if (random() % 2) std::swap(as, bs);
        whole = both(as, bs);
        a = Strided(other_dtype(dtype, random), as, random).fill(random);
        b = Strided(other_dtype(dtype, random), bs, random).fill(random);
    }
};

template <typename T>
void check_value2(const tartan_context *context, int32_t dtype, std::mt19937_64 &random) {
    Pair p(dtype, random);
    const int32_t row = (int32_t)(random() % TARTAN_I_POINT2_ROWS);
    Strided y(other_dtype(dtype, random), p.whole, random);
    const std::vector<T> a = gathered<T>(p.a, p.whole), b = gathered<T>(p.b, p.whole);
    std::vector<T> want(a.size());
    portable(dtype).point2[row].value((int64_t)want.size(), a.data(), b.data(), want.data());
    const bool in_place = random() % 3 == 0 && p.a.shape() == p.whole;
    const Strided before = in_place ? p.a : y;
    tartan_op op = {};
    op.point2 = {"", row, &p.a.array, &p.b.array, in_place ? &p.a.array : &y.array};
    ASSERT_OK(tartan_i_cpu_point2(context, &op));
    expect_values(before, in_place ? p.a : y, want);
}

TEST_P(CpuPoints, ValuesOfTwoArrays) {
    std::mt19937_64 random(34);
    for (int round = 0; round < rounds(250); round++) {
        SCOPED_TRACE(round);
        const int32_t dtype = any_dtype(random);
        dtype == TARTAN_F64 ? check_value2<double>(context.get(), dtype, random)
                            : check_value2<float>(context.get(), dtype, random);
        if (HasFatalFailure()) return;
    }
}

double epsilon(int32_t dtype) {
    return dtype == TARTAN_F64   ? 0x1p-52
           : dtype == TARTAN_F32 ? 0x1p-23
           : dtype == TARTAN_F16 ? 0x1p-10
                                 : 0x1p-7;
}

// A gradient is the sum, over all elements that its own element met, of reals: within one rounding to its dtype and the error of
// sums in f64.
template <typename T>
void expect_sums(const Strided &before, const Strided &got, const Shape &whole, const std::vector<T> &terms) {
    std::vector<long double> sums((size_t)got.size()), sizes((size_t)got.size());
    for (size_t i = 0; i < terms.size(); i++) {
        const size_t to = (size_t)met_by(whole, got.shape(), (int64_t)i);
        sums[to] += terms[i], sizes[to] += std::fabs(terms[i]);
    }
    for (size_t i = 0; i < sums.size(); i++) {
        if (got.array.dtype == TARTAN_F16 && std::fabs(sums[i]) > 65000) continue; // it may overflow
        ASSERT_LE(std::fabs(sums[i] - got.get((int64_t)i)),
                  std::fabs(sums[i]) * epsilon(got.array.dtype) / 1.99 +
                      1e-7 * (got.array.dtype == TARTAN_F16) +
                      sizes[i] * 0x1p-52 * (40 + (double)terms.size() / 64))
            << i;
    }
    ASSERT_TRUE(before.only_elements_differ(got));
}

template <typename T>
void check_gradient2(const tartan_context *context, int32_t dtype, std::mt19937_64 &random) {
    Pair p(dtype, random);
    const int32_t row = (int32_t)(random() % TARTAN_I_POINT2_ROWS);
    const Strided g = Strided(other_dtype(dtype, random), p.whole, random).fill(random);
    Strided out[2] = {Strided(other_dtype(dtype, random), p.a.shape(), random),
                      Strided(other_dtype(dtype, random), p.b.shape(), random)};
    const Strided before[2] = {out[0], out[1]};
    const size_t wanted = random() % 4; // 0: both
    tartan_op op = {};
    op.point2_gradient = {"",
                          row,
                          &p.a.array,
                          &p.b.array,
                          nullptr,
                          &g.array,
                          wanted == 1 ? nullptr : &out[0].array,
                          wanted == 2 ? nullptr : &out[1].array};
    ASSERT_OK(tartan_i_cpu_point2_gradient(context, &op));
    const std::vector<T> a = gathered<T>(p.a, p.whole), b = gathered<T>(p.b, p.whole), y(a.size()),
                         gs = gathered<T>(g, p.whole);
    for (size_t k = 0; k < 2; k++) {
        if (wanted == k + 1) {
            EXPECT_TRUE(out[k].same_bits(before[k]));
            continue;
        }
        std::vector<T> terms(a.size());
        portable(dtype).point2[row].gradient[k]((int64_t)a.size(), a.data(), b.data(), y.data(), gs.data(),
                                                terms.data());
        if (out[k].size() == (int64_t)terms.size())
            expect_values(before[k], out[k], terms);
        else
            expect_sums(before[k], out[k], p.whole, terms);
    }
}

TEST_P(CpuPoints, GradientsOfTwoArrays) {
    std::mt19937_64 random(35);
    for (int round = 0; round < rounds(400); round++) {
        SCOPED_TRACE(round);
        const int32_t dtype = any_dtype(random);
        dtype == TARTAN_F64 ? check_gradient2<double>(context.get(), dtype, random)
                            : check_gradient2<float>(context.get(), dtype, random);
        if (HasFatalFailure()) return;
    }
}

// Small and large gradients, summed over first, last and middle dimensions: the same bits with any threads and instruction set.
TEST(CpuPointsSums, DoNotDependOnThreadsOrInstructionSets) {
    const struct {
        Shape whole, part;
    } cases[] = {{{500, 130}, {130}},   {{500, 130}, {500, 1}},      {{65000}, {1}},
                 {{3, 20000}, {20000}}, {{4, 18000, 2}, {18000, 1}}, {{20, 40, 30}, {40, 1}},
                 {{300, 70}, {}},       {{2, 3, 17000}, {3, 17000}}};
    for (const auto &c : cases) {
        std::mt19937_64 random(36);
        const Strided a = Strided(TARTAN_F32, c.whole, random).fill(random),
                      b = Strided(TARTAN_F32, c.part, random).fill(random),
                      g = Strided(TARTAN_F32, c.whole, random).fill(random),
                      empty(TARTAN_F32, c.part, random);
        Strided first;
        for (tartan_i_cpu_features set : feature_sets()) {
            const WithFeatures used(set);
            for (int32_t threads : {1, 2, 3, 7}) {
                const Context context = open_context(threads);
                Strided got = empty;
                tartan_op op = {};
                op.point2_gradient = {
                    "", TARTAN_I_POINT2_multiply, &a.array, &b.array, nullptr, &g.array, nullptr, &got.array};
                ASSERT_OK(tartan_i_cpu_point2_gradient(context.get(), &op));
                if (first.array.data == nullptr) {
                    first = got;
                    std::vector<float> terms((size_t)a.size());
                    for (size_t i = 0; i < terms.size(); i++)
                        terms[i] = (float)(a.get((int64_t)i) * g.get((int64_t)i));
                    expect_sums(empty, got, c.whole, terms);
                }
                ASSERT_TRUE(first.same_bits(got)) << threads << " threads, " << features_name(set);
            }
        }
    }
}

TEST(CpuPointsSums, FailuresWriteNothing) {
    std::mt19937_64 random(37);
    const Strided a = Strided(TARTAN_F32, {50, 40}, random).fill(random),
                  b = Strided(TARTAN_F32, {40}, random).fill(random);
    Strided of_a(TARTAN_F32, {50, 40}, random), of_b(TARTAN_F32, {40}, random);
    const Strided before_a = of_a, before_b = of_b;
    tartan_op op = {};
    op.point2_gradient = {
        "", TARTAN_I_POINT2_multiply, &a.array, &b.array, nullptr, &a.array, &of_a.array, &of_b.array};
    const Context context = open_context(2);
    tartan_i_memory_fail_at(0);
    EXPECT_EQ(TARTAN_ERR_MEMORY, tartan_i_cpu_point2_gradient(context.get(), &op));
    tartan_i_memory_fail_at(-1);
    EXPECT_TRUE(of_a.same_bits(before_a) && of_b.same_bits(before_b));
    EXPECT_OK(tartan_i_cpu_point2_gradient(context.get(), &op));
}

} // namespace
