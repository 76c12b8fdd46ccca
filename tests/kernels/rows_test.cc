// SPDX-License-Identifier: Apache-2.0
// Row kernels: the same bits with every instruction set, in the order that kernels.h states, near the exact result,
// and no memory touched beyond the rows.
#include "exp_error.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <sys/mman.h>
#include <unistd.h>

namespace {

using namespace tartan_test;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Rows : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, Rows, ::testing::ValuesIn(feature_sets()),
                         [](const auto &set) { return features_name(set.param); });

// Equal bits, or both NaN.
template <typename T>::testing::AssertionResult same(T a, T b) {
    if (std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b)))
        return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << a << " and " << b;
}

bool counts(const uint32_t *mask, size_t i) {
    return mask == nullptr || (mask[i / 32] >> (i % 32) & 1);
}

// Chains of i modulo 16 that meet by halves.
template <typename T, typename Step, typename Fold> T in_chains(size_t n, T start, Step step, Fold fold) {
    T chains[16];
    for (T &chain : chains) chain = start;
    for (size_t i = 0; i < n; i++) chains[i % 16] = step(chains[i % 16], i);
    for (size_t half = 8; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++) chains[j] = fold(chains[j], chains[j + half]);
    return chains[0];
}

// A random row of n elements and, now and then, a mask. Where `special`, with NaN, infinities and zeros of both signs.
template <typename T> struct Row {
    size_t n, shift;
    std::vector<T> memory;
    std::vector<uint32_t> bits;
    const T *x;
    const uint32_t *mask = nullptr;

    Row(uint64_t seed, std::mt19937_64 &random)
        : n(seed < 80 ? seed : below(random, 300)), shift(below(random, 16)) {
        memory.resize(n + shift);
        std::uniform_real_distribution<double> uniform(-6, 6);
        const bool special = random() % 3 == 0;
        const T specials[] = {(T)NAN, (T)INFINITY, -(T)INFINITY, (T)0, -(T)0};
        for (T &value : memory)
            value = special && random() % 8 == 0 ? specials[random() % 5] : (T)uniform(random);
        x = memory.data() + shift;
        if (random() % 2 == 0) return;
        bits.resize((n + 31) / 32 + 1 + shift % 2);
        for (uint32_t &word : bits)
            word = random() % 5 == 0 ? 0 : (uint32_t)random(); // bits behind the row too
        mask = bits.data() + shift % 2;
    }
};

template <typename T> void check_sums(const Tables<T> &tables, const Row<T> &row, double shift) {
    const int64_t n = (int64_t)row.n;
    const auto add = [](T a, T b) { return a + b; };
    const double sum = tables.best.row_sum(n, row.x);
    EXPECT_TRUE(same(sum, (double)in_chains<T>(
                              row.n, 0, [&](T c, size_t i) { return c + row.x[i]; }, add)));
    const auto square = [&](T c, size_t i) { return std::fma(row.x[i] - (T)shift, row.x[i] - (T)shift, c); };
    const double squares = tables.best.row_square_sum(n, row.x, shift);
    EXPECT_TRUE(same(squares, (double)in_chains<T>(row.n, 0, square, add)));
    EXPECT_TRUE(same(squares, tables.c.row_square_sum(n, row.x, shift)));
    EXPECT_TRUE(same(sum, tables.c.row_sum(n, row.x)));

    // Each term is in at most n / 16 + 1 additions of its chain and 4 more.
    long double exact = 0, size = 0, exact_squares = 0;
    for (size_t i = 0; i < row.n; i++) {
        exact += row.x[i];
        size += std::fabs((long double)row.x[i]);
        const long double difference = (long double)row.x[i] - (long double)(T)shift;
        exact_squares += difference * difference;
    }
    if (!std::isfinite((double)exact)) return; // valgrind is wrong about infinite long doubles
    const long double bound = (long double)(row.n / 16 + 5) * std::numeric_limits<T>::epsilon() / 2;
    EXPECT_LE(std::fabs((long double)sum - exact), bound * size * 1.001L);
    EXPECT_LE(std::fabs((long double)squares - exact_squares),
              (bound + std::numeric_limits<T>::epsilon()) * exact_squares * 1.001L);
}

template <typename T> void check_max(const Tables<T> &tables, const Row<T> &row) {
    const int64_t n = (int64_t)row.n;
    const double max = tables.best.row_max(n, row.x, row.mask);
    const auto larger = [](T a, T b) { return a > b ? a : b; };
    const auto step = [&](T c, size_t i) { return counts(row.mask, i) && row.x[i] > c ? row.x[i] : c; };
    EXPECT_EQ((double)in_chains<T>(row.n, -(T)INFINITY, step, larger), max);
    EXPECT_TRUE(same(max, tables.c.row_max(n, row.x, row.mask))); // the sign of a zero too
    bool found = max == -kInfinity;
    for (size_t i = 0; i < row.n; i++) {
        if (!counts(row.mask, i) || std::isnan(row.x[i])) continue;
        EXPECT_LE(row.x[i], max);
        found = found || row.x[i] == max;
    }
    EXPECT_TRUE(found);
}

template <typename T>
void check_exp_sum(const Tables<T> &tables, const Row<T> &row, double scale, double shift) {
    const int64_t n = (int64_t)row.n;
    Guarded<T> want(row.n, row.shift), got(row.n, row.shift), same_place(row.n, row.shift);
    std::copy_n(row.x, row.n, same_place.data());
    const double sum_c = tables.c.row_exp_sum(n, scale, row.x, shift, row.mask, want.data());
    const double sum = tables.best.row_exp_sum(n, scale, row.x, shift, row.mask, got.data());
    EXPECT_TRUE(
        same(sum, tables.best.row_exp_sum(n, scale, same_place.data(), shift, row.mask, same_place.data())));
    EXPECT_TRUE(same(sum, sum_c));
    EXPECT_TRUE(got.intact() && want.intact() && same_place.intact());
    for (size_t i = 0; i < row.n; i++) {
        EXPECT_TRUE(same(want.data()[i], got.data()[i])) << i;
        EXPECT_TRUE(same(want.data()[i], same_place.data()[i])) << i;
        if (counts(row.mask, i)) {
            const T argument = std::fma((T)scale, row.x[i], -(T)shift);
            if (!has_wide<T>()) continue;
            EXPECT_LT(units(got.data()[i], wide_exp(argument)), 1) << i << " of " << argument;
        } else {
            EXPECT_TRUE(same(got.data()[i], T(0))) << i;
        }
    }
    const auto step = [&](T c, size_t i) { return c + got.data()[i]; };
    EXPECT_TRUE(same(sum, (double)in_chains<T>(row.n, 0, step, [](T a, T b) { return a + b; })));
}

template <typename T> void check_rows(const Tables<T> &tables, uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ", " << 8 * sizeof(T) << " bits");
    std::mt19937_64 random(seed);
    const Row<T> row(seed, random);
    const double scale = random() % 2 ? 1 : (double)(T)random_values(1, seed)[0];
    const double shift = random() % 4 == 0 ? 0 : (double)(T)random_values(1, seed + 1)[0];
    check_sums(tables, row, shift);
    check_max(tables, row);
    check_exp_sum(tables, row, scale, shift);
}

TEST_P(Rows, AreChainsOfSixteenNearTheExactResult) {
    const Tables<float> f32(GetParam());
    const Tables<double> f64(GetParam());
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        check_rows(f32, seed);
        check_rows(f64, seed);
        if (HasFailure()) return;
    }
}

// Elements that do not count may hold anything, and a row without elements that count gives nothing.
template <typename T> void check_masked(const Tables<T> &tables) {
    std::vector<T> x(37, (T)NAN), out(37, (T)5);
    const uint32_t none[2] = {0, 0xffffffe0}; // bits behind the row
    EXPECT_EQ(-kInfinity, tables.best.row_max(37, x.data(), none));
    EXPECT_TRUE(same(0.0, tables.best.row_exp_sum(37, 1, x.data(), -kInfinity, none, out.data())));
    for (T value : out) EXPECT_TRUE(same(T(0), value));
    x[36] = 3;
    const uint32_t last[2] = {0, 0x10};
    EXPECT_EQ(3, tables.best.row_max(37, x.data(), last));
    EXPECT_EQ(1, tables.best.row_exp_sum(37, 1, x.data(), 3, last, out.data()));
    EXPECT_EQ(1, out[36]);
    EXPECT_EQ(-kInfinity, tables.best.row_max(0, nullptr, nullptr));
    EXPECT_TRUE(same(0.0, tables.best.row_exp_sum(0, 1, nullptr, 0, nullptr, nullptr)));
    EXPECT_TRUE(same(0.0, tables.best.row_sum(0, nullptr)));
    EXPECT_TRUE(same(0.0, tables.best.row_square_sum(0, nullptr, 1)));
}

TEST_P(Rows, MaskedElementsDoNotCount) {
    check_masked(Tables<float>(GetParam()));
    check_masked(Tables<double>(GetParam()));
}

// w (x - shift), each step rounded; and 0 for what does not count, whatever it holds.
template <typename T> void check_gradient(const Tables<T> &tables) {
    std::mt19937_64 random(4);
    for (uint64_t seed = 0; seed < rounds(2000u); seed++) {
        const Row<T> row(seed % 300, random);
        const std::vector<double> values = random_values(row.n, seed);
        const std::vector<T> w(values.begin(), values.end());
        std::vector<T> got(row.n, 7), in_place(row.x, row.x + row.n);
        const int64_t n = (int64_t)row.n;
        tables.best.row_gradient(n, w.data(), row.x, 0.3, row.mask, got.data());
        tables.best.row_gradient(n, w.data(), in_place.data(), 0.3, row.mask, in_place.data());
        for (size_t i = 0; i < row.n; i++) {
            const T want = counts(row.mask, i) ? w[i] * (row.x[i] - (T)0.3) : (T)0;
            ASSERT_TRUE(same(want, got[i])) << "seed " << seed << " at " << i;
            ASSERT_TRUE(same(want, in_place[i])) << "seed " << seed << " at " << i;
        }
    }
}

template <typename T> void check_above(tartan_i_cpu_features set, uint64_t seed) {
    std::mt19937_64 random(seed);
    const Tables<T> tables(set);
    const Row<T> row(seed, random);
    const double limits[] = {0, kInfinity, -kInfinity, row.n > 0 ? (double)row.x[random() % row.n] : 1};
    for (const double limit : limits) {
        if (std::isnan(limit)) continue;
        std::vector<int32_t> want, got(row.n + 1, -7);
        for (size_t i = 0; i < row.n; i++)
            if (counts(row.mask, i) && !(row.x[i] <= (T)limit)) want.push_back((int32_t)i);
        const int64_t found = tables.best.row_above((int64_t)row.n, row.x, row.mask, limit, got.data());
        ASSERT_EQ((int64_t)want.size(), found) << "of " << row.n << " above " << limit;
        EXPECT_EQ(want, std::vector<int32_t>(got.begin(), got.begin() + found));
        EXPECT_EQ(-7, got[row.n]);
    }
}

TEST_P(Rows, PlacesAboveALimit) {
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        SCOPED_TRACE(seed);
        check_above<float>(GetParam(), seed);
        check_above<double>(GetParam(), seed);
        if (HasFailure()) return;
    }
}

TEST_P(Rows, GradientOfSoftmax) {
    check_gradient(Tables<float>(GetParam()));
    check_gradient(Tables<double>(GetParam()));
}

// Rows and masks that end where readable memory ends, and outputs that end where writable memory does.
class Fence {
  public:
    Fence() : page_((size_t)sysconf(_SC_PAGESIZE)) {
        memory_ = mmap(nullptr, 2 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT_NE(MAP_FAILED, memory_);
        EXPECT_EQ(0, mprotect((char *)memory_ + page_, page_, PROT_NONE));
    }
    ~Fence() { munmap(memory_, 2 * page_); }
    template <typename T> T *last(size_t n) { return (T *)((char *)memory_ + page_) - n; }

  private:
    size_t page_;
    void *memory_;
};

template <typename T> void check_fence(const Tables<T> &tables) {
    Fence in, masks, out;
    for (size_t n = 0; n <= 100; n++) {
        const T *x = in.last<T>(n); // zeros
        uint32_t *mask = masks.last<uint32_t>((n + 31) / 32);
        for (size_t i = 0; i < (n + 31) / 32; i++) mask[i] = ~0u;
        const int64_t count = (int64_t)n;
        for (const uint32_t *m : {(const uint32_t *)nullptr, (const uint32_t *)mask}) {
            EXPECT_EQ(n == 0 ? -kInfinity : 0, tables.best.row_max(count, x, m));
            EXPECT_EQ((double)n, tables.best.row_exp_sum(count, 1, x, 0, m, out.last<T>(n)));
        }
        for (const uint32_t *m : {(const uint32_t *)nullptr, (const uint32_t *)mask})
            tables.best.row_gradient(count, x, x, 1, m, out.last<T>(n));
        for (const uint32_t *m : {(const uint32_t *)nullptr, (const uint32_t *)mask})
            EXPECT_EQ(count, tables.best.row_above(count, x, m, -1, out.last<int32_t>(n)));
        EXPECT_EQ(0, tables.best.row_sum(count, x));
        EXPECT_EQ((double)n, tables.best.row_square_sum(count, x, 1));
    }
}

TEST_P(Rows, NothingBehindARowIsTouched) {
    check_fence(Tables<float>(GetParam()));
    check_fence(Tables<double>(GetParam()));
}

// ---- exp ----

template <typename T> T exp_by(const Tables<T> &tables, T x) {
    T result = 7;
    EXPECT_TRUE(same((double)result, 7.0));
    const double sum = tables.best.row_exp_sum(1, 1, &x, 0, nullptr, &result);
    EXPECT_TRUE(same(sum, (double)result));
    return result;
}

template <typename T> void check_edges(const Tables<T> &tables, T most, T least) {
    using Limits = std::numeric_limits<T>;
    const auto e = [&](T x) { return exp_by(tables, x); };
    EXPECT_TRUE(std::isnan(e((T)NAN)) && std::isnan(e(-(T)NAN)));
    EXPECT_EQ((T)INFINITY, e((T)INFINITY));
    EXPECT_EQ((T)INFINITY, e(Limits::max()));
    EXPECT_TRUE(same(T(0), e(-(T)INFINITY)));
    EXPECT_TRUE(same(T(0), e(Limits::lowest())));
    for (T tiny :
         {(T)0, -(T)0, Limits::denorm_min(), -Limits::denorm_min(), Limits::min(), Limits::epsilon() / 4})
        EXPECT_EQ(1, e(tiny));
    // On both sides of overflow and underflow.
    EXPECT_LT(e(most), (T)INFINITY);
    EXPECT_EQ((T)INFINITY, e(std::nextafter(most, (T)INFINITY)));
    EXPECT_EQ(Limits::denorm_min(), e(least));
    EXPECT_TRUE(same(T(0), e(std::nextafter(least, -(T)INFINITY))));
    if (!has_wide<T>()) return;
    for (int k = Limits::min_exponent - Limits::digits; k <= Limits::max_exponent; k++) { // where 2^k changes
        T x = (T)(((long double)k + 0.5L) * 0.693147180559945309417232121458L);
        for (int i = 0; i < 4; i++) x = std::nextafter(x, -(T)INFINITY);
        for (int i = 0; i < 8; i++, x = std::nextafter(x, (T)INFINITY))
            EXPECT_LT(units(e(x), wide_exp(x)), 1) << x;
    }
}

TEST_P(Rows, ExpOfEdges) {
    check_edges<float>(Tables<float>(GetParam()), 0x1.62e42ep+6f, -0x1.9fe368p+6f);
    check_edges<double>(Tables<double>(GetParam()), 0x1.62e42fefa39efp+9, -0x1.74910d52d3051p+9);
}

// The digests of one machine, found on all: exp of numbers spread over all of f32, and over -1024 .. 1024 in f64.
template <typename T> uint64_t digest_of_exp(const std::vector<T> &x) {
    std::vector<T> result(x.size());
    all_tables<T>().back().best.row_exp_sum((int64_t)x.size(), 1, x.data(), 0, nullptr, result.data());
    return XXH3_64bits(result.data(), result.size() * sizeof(T));
}

TEST(RowsExp, HasTheSameBitsOnEveryArchitecture) {
    std::vector<float> narrow;
    std::vector<double> wide;
    for (uint64_t i = 0; i < 65536; i++) {
        const uint32_t bits = (uint32_t)i * 65521;
        float x;
        std::memcpy(&x, &bits, 4);
        if (!std::isnan(x)) narrow.push_back(x);
        wide.push_back(std::ldexp((double)(int64_t)(i * 0x9e3779b97f4a7c15), -53));
    }
    EXPECT_EQ(3092113043231581254u, digest_of_exp(narrow));
    EXPECT_EQ(16522281528257404844u, digest_of_exp(wide));
}

TEST(RowsExp, OfALargeSampleOfF32IsWithinOneUnit) {
    const std::vector<Tables<float>> tables = all_tables<float>();
    std::vector<float> x(8192);
    double worst = 0;
    for (uint64_t bits = 0; bits < uint64_t(1) << 32;) {
        for (float &one : x) one = f32_of_bits((uint32_t)bits), bits += 1021 * (uint64_t)tartan_test::share;
        worst = std::max(worst, worst_exp(tables, x));
        if (HasFailure()) return;
    }
    EXPECT_LT(worst, 1);
}

TEST(RowsExp, OfALargeSampleOfF64IsWithinOneUnit) {
    // Where long double is computed by software (AArch64, emulators) it takes too long.
    const bool quick = std::numeric_limits<long double>::digits == 64 && tartan_test::share == 1;
    const int64_t lines = quick ? 1250 : 25;
    const std::vector<Tables<double>> tables = all_tables<double>();
    std::mt19937_64 random(1);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> x(8192);
    double worst = 0;
    for (int64_t line = 0; line < lines; line++) {
        for (size_t i = 0; i < x.size(); i++) {
            const double u = uniform(random);
            switch (i % 4) {
            case 0:
                x[i] = 728 * u - 18;
                break; // all results from 0 to infinity
            case 1:
                x[i] = u;
                break; // |k| <= 1
            case 2:
                x[i] = std::ldexp(u, (int)below(random, 70) - 60);
                break; // all sizes of arguments
            case 3:
                x[i] = -726 + 20 * u;
                break; // subnormal results
            }
        }
        worst = std::max(worst, worst_exp(tables, x));
        if (HasFailure()) return;
    }
    EXPECT_LT(worst, 1);
}

} // namespace
