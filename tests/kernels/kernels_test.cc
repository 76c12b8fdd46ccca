// SPDX-License-Identifier: Apache-2.0
// Every kernel of every instruction set that this CPU has gives the bits of the portable one and writes nothing else.
#include "tables.h"

#include <cmath>
#include <cstring>

extern "C" {
#include "core/dtype.h"
}

namespace {

using tartan_test::below;
using tartan_test::fill;
using tartan_test::Guarded;
using tartan_test::random_values;
using tartan_test::rounds;
using tartan_test::Tables;

class Kernels : public ::testing::TestWithParam<tartan_i_cpu_features> {};
INSTANTIATE_TEST_SUITE_P(Each, Kernels, ::testing::ValuesIn(tartan_test::feature_sets()),
                         [](const auto &set) { return tartan_test::features_name(set.param); });

// ---- Strips ----

template <typename T> void check_strip(const Tables<T> &tables, uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const tartan_i_kernels &k = tables.best;
    const int64_t rows = 1 + (int64_t)below(random, TARTAN_I_STRIP_ROWS);
    const int64_t width = k.product.lanes * (1 + (int64_t)below(random, TARTAN_I_MAX_VECTORS));
    const int64_t nterms = (int64_t)below(random, 5), depth = 1 + (int64_t)below(random, 40);
    const bool columns = random() % 2, backwards = random() % 4 == 0;
    const int64_t row = (int64_t)below(random, 4), all_rows = row + rows; // of a block
    const int64_t a_row = columns ? 1 : depth, a_col = columns ? all_rows : 1;
    const int64_t b_row = width + (int64_t)below(random, 3) * 5,
                  sums_row = width + (int64_t)below(random, 2) * 3;

    std::vector<T> a((size_t)(all_rows * depth * 6 + 8)), b((size_t)(b_row * depth * 6 + 8));
    fill(a.data(), a.size(), random);
    fill(b.data(), b.size(), random);
    const int64_t ahead = (int64_t)below(random, 4); // later terms are only asked for
    std::vector<tartan_i_term> terms((size_t)(nterms + ahead));
    for (auto &t : terms) {
        t.a = a.data() + below(random, 6) * (size_t)(all_rows * depth);
        t.b = (int64_t)below(random, 6) * depth;
        t.k = (int64_t)below(random, (size_t)depth + 1);
    }
    const T *b_base = b.data() + below(random, 8);
    tartan_i_strip strip = {};
    strip.row = row, strip.rows = rows, strip.width = width;
    strip.a_row = a_row, strip.a_col = a_col;
    strip.b = b_base, strip.b_row = b_row;
    if (backwards) { // negative strides
        strip.b = b_base + (6 * depth - 1) * b_row, strip.b_row = -b_row;
    }
    strip.sums_row = sums_row, strip.first = random() % 2;
    strip.ahead_a = (int64_t)below(random, (size_t)ahead + 1),
    strip.ahead_b = (int64_t)below(random, (size_t)ahead + 1);
    strip.ahead_far = (int64_t)below(random, (size_t)ahead + 1);
    strip.again = random() % 2, strip.next_row = (int64_t)below(random, 100);
    tartan_i_stream streams[TARTAN_I_STREAMS];
    for (auto &s : streams)
        s = {reinterpret_cast<const char *>(a.data()), (int64_t)below(random, 100),
             (int64_t)below(random, 20)};
    if (random() % 2) strip.streams = streams;
    tartan_i_after next = {};
    next.terms = terms.data(), next.count = (int64_t)below(random, terms.size() + 1);
    next.b = reinterpret_cast<const char *>(b.data()), next.b_row = b_row * (int64_t)sizeof(T);
    next.each = (int64_t)below(random, 300), next.left = random() % 2;
    if (random() % 4 == 0) strip.next = &next;

    const size_t n = (size_t)(rows * sums_row - (sums_row - width)), shift = below(random, 16);
    Guarded<T> want(n, shift), got(n, shift), cut(n, shift);
    fill(want.data(), n, random);
    std::memcpy(got.data(), want.data(), n * sizeof(T));
    std::memcpy(cut.data(), want.data(), n * sizeof(T));
    strip.sums = want.data();
    tables.c.product.strip(&strip, terms.data(), nterms);
    strip.sums = got.data();
    k.product.strip(&strip, terms.data(), nterms);
    EXPECT_SAME_BITS(n, want.data(), got.data());
    EXPECT_TRUE(got.intact());

    strip.again = false; // so that what is asked for is there

    // A list cut in two, the later part of it continuing the sums, gives the same bits.
    const int64_t half = nterms > 0 ? (int64_t)below(random, (size_t)nterms + 1) : 0;
    strip.sums = cut.data();
    k.product.strip(&strip, terms.data(), half);
    strip.first = false;
    k.product.strip(&strip, terms.data() + half, nterms - half);
    EXPECT_SAME_BITS(n, want.data(), cut.data());
}

TEST_P(Kernels, StripHasThePortableBits) {
    const Tables<float> f32(GetParam());
    const Tables<double> f64(GetParam());
    for (uint64_t seed = 0; seed < rounds(1500u); seed++) {
        check_strip(f32, seed);
        check_strip(f64, seed);
        if (HasFailure()) return;
    }
}

// All 24 shapes once, against sums written out here. `ahead`: 1, later terms are asked for, or 0.
template <typename T> void check_strip_shapes(const tartan_i_kernels &k, int64_t ahead) {
    for (int64_t rows = 1; rows <= TARTAN_I_STRIP_ROWS; rows++) {
        for (int64_t width = k.product.lanes; width <= TARTAN_I_MAX_VECTORS * k.product.lanes;
             width += k.product.lanes) {
            std::mt19937_64 random((uint64_t)(rows * 100 + width));
            const int64_t depth = 19;
            std::vector<T> a((size_t)(rows * depth)), b((size_t)(depth * width)),
                sums((size_t)(rows * width));
            fill(a.data(), a.size(), random);
            fill(b.data(), b.size(), random);
            tartan_i_strip strip = {};
            strip.rows = rows, strip.width = width, strip.a_row = depth, strip.a_col = 1;
            strip.b = b.data(), strip.b_row = width, strip.sums = sums.data(), strip.sums_row = width;
            strip.first = strip.again = true;
            strip.ahead_a = strip.ahead_b = strip.ahead_far = ahead;
            tartan_i_term term = {};
            term.a = a.data(), term.k = depth;
            k.product.strip(&strip, &term, 1);
            for (int64_t i = 0; i < rows; i++) {
                for (int64_t j = 0; j < width; j++) {
                    T sum = 0;
                    for (int64_t d = 0; d < depth; d++)
                        sum = std::fma(a[(size_t)(i * depth + d)], b[(size_t)(d * width + j)], sum);
                    ASSERT_EQ(sum, sums[(size_t)(i * width + j)])
                        << rows << " x " << width << " at " << i << ", " << j;
                }
            }
        }
    }
}

TEST_P(Kernels, StripIsOneChainOfFusedProducts) {
    for (int64_t ahead : {0, 1}) {
        check_strip_shapes<float>(Tables<float>(GetParam()).best, ahead);
        check_strip_shapes<double>(Tables<double>(GetParam()).best, ahead);
    }
}

TEST_P(Kernels, StripWithoutTermsGivesZerosOrKeepsTheSums) {
    const Tables<float> tables(GetParam());
    std::vector<float> sums((size_t)tables.best.product.lanes, 3.5f);
    tartan_i_strip strip = {};
    strip.rows = 1, strip.width = tables.best.product.lanes, strip.b = sums.data(), strip.sums = sums.data();
    strip.sums_row = strip.width;
    tables.best.product.strip(&strip, nullptr, 0);
    for (float s : sums) EXPECT_EQ(3.5f, s);
    strip.first = true;
    tables.best.product.strip(&strip, nullptr, 0);
    for (float s : sums) EXPECT_EQ(0.0f, s);
}

// ---- Lines ----

template <typename T> void check_transpose(decltype(tartan_i_kernels::transpose) transpose, uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const int64_t rows = (int64_t)below(random, 70), cols = (int64_t)below(random, 70);
    const int64_t in_row = cols + (int64_t)below(random, 4), out_row = rows + (int64_t)below(random, 4);
    std::vector<T> in((size_t)(rows * in_row + 1));
    for (size_t i = 0; i < in.size() * sizeof(T); i++)
        reinterpret_cast<unsigned char *>(in.data())[i] = (unsigned char)random();
    const size_t n = rows > 0 && cols > 0 ? (size_t)((cols - 1) * out_row + rows) : 0,
                 shift = below(random, 16);
    Guarded<T> out(n, shift);
    std::vector<T> before(out.data(), out.data() + n);
    transpose(rows, cols, in.data(), in_row, out.data(), out_row);
    EXPECT_TRUE(out.intact());
    for (int64_t j = 0; n > 0 && j < cols; j++)
        for (int64_t i = 0; i < (j + 1 < cols ? out_row : rows); i++) {
            const T want = i < rows ? in[(size_t)(i * in_row + j)] : before[(size_t)(j * out_row + i)];
            ASSERT_EQ(0, std::memcmp(&want, out.data() + j * out_row + i, sizeof(T))) << i << ", " << j;
        }
}

TEST_P(Kernels, TransposeMovesEveryElement) {
    const Tables<float> f32(GetParam());
    const Tables<double> f64(GetParam());
    tartan_i_kernels pairs;
    tartan_i_kernels_fill(GetParam(), TARTAN_BF16, &pairs);
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        check_transpose<float>(f32.best.transpose, seed);
        check_transpose<double>(f64.best.transpose, seed);
        if (pairs.product.group > 1 && pairs.product.parts == 1)
            check_transpose<uint16_t>(pairs.product.turn, seed);
        if (HasFailure()) return;
    }
}

template <typename T> void check_lines(const Tables<T> &tables, uint64_t seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const size_t n = below(random, 150), shift = below(random, 16);
    std::vector<T> x(n + shift + 1), y(n + shift + 1);
    fill(x.data(), x.size(), random);
    fill(y.data(), y.size(), random);
    const double alpha = (double)(T)random_values(1, seed)[0];
    const double beta = random() % 3 == 0 ? 0 : (double)(T)random_values(1, seed + 1)[0];
    Guarded<T> want(n, shift), got(n, shift);
    const auto start = [&] {
        std::memcpy(want.data(), y.data(), n * sizeof(T));
        std::memcpy(got.data(), y.data(), n * sizeof(T));
        if (beta == 0 && n > 0) want.data()[0] = got.data()[0] = NAN; // not read
    };
    start();
    const int32_t dtype = tables.best.dtype;
    tables.c.commit[dtype](1, (int64_t)n, alpha, x.data() + shift, 0, beta, want.data(), 0);
    tables.best.commit[dtype](1, (int64_t)n, alpha, x.data() + shift, 0, beta, got.data(), 0);
    EXPECT_SAME_BITS(n, want.data(), got.data());
    EXPECT_TRUE(got.intact());
    for (size_t i = 0; i < n; i++) {
        const T r = (T)alpha * x[shift + i];
        EXPECT_EQ(beta == 0 ? r : std::fma((T)beta, y[i], r), got.data()[i]);
    }
    start();
    tables.best.scale((int64_t)n, alpha, x.data() + shift, got.data());
    EXPECT_TRUE(got.intact());
    for (size_t i = 0; i < n; i++) EXPECT_EQ((T)alpha * x[shift + i], got.data()[i]);

    const double dot_c = tables.c.dot((int64_t)n, x.data(), y.data() + shift);
    const double dot = tables.best.dot((int64_t)n, x.data(), y.data() + shift);
    EXPECT_SAME_BITS(1, &dot_c, &dot);
    long double exact = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        exact += (long double)x[i] * (long double)y[shift + i];
        size += std::fabs((long double)x[i] * (long double)y[shift + i]);
    }
    EXPECT_LE(std::fabs((double)((long double)dot - exact)),
              (8 + 2 * std::sqrt((double)n)) * (double)std::numeric_limits<T>::epsilon() * (double)size);
}

TEST_P(Kernels, LinesHaveThePortableBits) {
    const Tables<float> f32(GetParam());
    const Tables<double> f64(GetParam());
    for (uint64_t seed = 0; seed < rounds(1000u); seed++) {
        check_lines(f32, seed);
        check_lines(f64, seed);
        if (HasFailure()) return;
    }
}

// ---- 16 bits ----

TEST_P(Kernels, LoadsEvery16BitNumber) {
    const Tables<float> tables(GetParam());
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); i++) all[i] = (uint16_t)i;
    std::vector<float> got(all.size());
    tables.best.load[TARTAN_F16](65536, all.data(), got.data());
    for (size_t i = 0; i < all.size(); i++) {
        const float want = tartan_i_f32_of_f16(all[i]);
        ASSERT_TRUE(std::memcmp(&want, &got[i], 4) == 0) << "f16 " << i;
    }
    tables.best.load[TARTAN_BF16](65536, all.data(), got.data());
    for (size_t i = 0; i < all.size(); i++) {
        const float want = tartan_i_f32_of_bf16(all[i]);
        ASSERT_TRUE(std::memcmp(&want, &got[i], 4) == 0) << "bf16 " << i;
    }
}

// Bit patterns of all kinds: ties, overflow to infinity, subnormals, NaN.
TEST_P(Kernels, StoresRoundOnceToNearestEven) {
    const Tables<float> tables(GetParam());
    std::mt19937_64 random(7);
    std::vector<float> values;
    for (int i = 0; i < 200000; i++) {
        uint32_t bits = (uint32_t)random();
        if (i % 3 == 0) bits &= 0xffffe000u; // representable in f16, or nearly
        if (i % 3 == 1) bits = (bits & 0x807fffffu) | (uint32_t)(96 + i % 60) << 23; // in the range of f16
        if (i % 7 == 0) bits = (bits & 0xffff0000u) | 0x8000u;                       // ties of bf16
        if (i % 11 == 0) bits = (bits & 0xffffe000u) | 0x1000u;                      // ties of f16
        float value;
        std::memcpy(&value, &bits, 4);
        values.push_back(value);
    }
    for (float v : {0.0f, -0.0f, 65504.0f, 65519.996f, 65520.0f, INFINITY, -INFINITY, (float)NAN,
                    5.9604645e-8f, 2.98e-8f, 3.4e38f})
        values.push_back(v);
    std::vector<uint16_t> got(values.size());
    tables.best.store[TARTAN_F16]((int64_t)values.size(), values.data(), got.data());
    for (size_t i = 0; i < values.size(); i++) ASSERT_EQ(tartan_i_f16_of_f32(values[i]), got[i]) << values[i];
    tables.best.store[TARTAN_BF16]((int64_t)values.size(), values.data(), got.data());
    for (size_t i = 0; i < values.size(); i++)
        ASSERT_EQ(tartan_i_bf16_of_f32(values[i]), got[i]) << values[i];
}

TEST_P(Kernels, ShortLinesOf16BitStayInTheirPlace) {
    const Tables<float> tables(GetParam());
    std::mt19937_64 random(3);
    for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
        for (size_t n = 0; n < 70; n++) {
            std::vector<float> reals(n + 1);
            fill(reals.data(), n, random);
            Guarded<uint16_t> halves(n, n % 8);
            tables.best.store[dtype]((int64_t)n, reals.data(), halves.data());
            EXPECT_TRUE(halves.intact()) << n;
            Guarded<float> back(n, n % 5), want(n, n % 5);
            tables.best.load[dtype]((int64_t)n, halves.data(), back.data());
            tables.c.load[dtype]((int64_t)n, halves.data(), want.data());
            EXPECT_TRUE(back.intact()) << n;
            EXPECT_SAME_BITS(n, want.data(), back.data());
        }
    }
}

// Several rows at once, with gaps between them, of each dtype: the same as loads, one row of reals and stores.
TEST_P(Kernels, RowsAreCommittedInEveryDtype) {
    const Tables<float> tables(GetParam());
    const tartan_i_kernels &k = tables.best;
    std::mt19937_64 random(11);
    for (int32_t dtype : {TARTAN_F32, TARTAN_F16, TARTAN_BF16}) {
        const size_t bytes = (size_t)tartan_dtype_bytes(dtype);
        for (size_t i = 0; i < rounds((size_t)1000); i++) {
            const size_t n = i % 70, rows = 1 + below(random, 4), sums_row = n + below(random, 3),
                         row = n + below(random, 3);
            const double alpha = 0.75, beta = n % 3 == 0 ? 0 : -1.5;
            std::vector<float> sums(rows * sums_row + 1), old(n), want(n);
            fill(sums.data(), sums.size(), random);
            Guarded<uint8_t> out((rows * row + 1) * bytes, (n % 4) * bytes);
            for (size_t i = 0; i < rows * row * bytes; i++) out.data()[i] = (uint8_t)(random() % 64);
            const std::vector<uint8_t> before(out.data(), out.data() + (rows * row + 1) * bytes);
            k.commit[dtype]((int64_t)rows, (int64_t)n, alpha, sums.data(), (int64_t)sums_row, beta,
                            out.data(), (int64_t)row);
            EXPECT_TRUE(out.intact());
            std::vector<uint8_t> expected = before;
            for (size_t i = 0; i < rows; i++) {
                tables.c.load[dtype]((int64_t)n, before.data() + i * row * bytes, old.data());
                for (size_t j = 0; j < n; j++) {
                    const float part = (float)alpha * sums[i * sums_row + j];
                    want[j] = beta == 0 ? part : std::fma((float)beta, old[j], part);
                }
                tables.c.store[dtype]((int64_t)n, want.data(), expected.data() + i * row * bytes);
            }
            EXPECT_EQ(0, std::memcmp(expected.data(), out.data(), expected.size())) << dtype << " " << n;
        }
    }
}

// ---- The table ----

TEST_P(Kernels, TableIsComplete) {
    for (int32_t dtype : {TARTAN_F32, TARTAN_F64}) {
        tartan_i_kernels k;
        tartan_i_kernels_fill(GetParam(), dtype, &k);
        EXPECT_EQ(0u, k.uses & ~GetParam());
        EXPECT_EQ(dtype, k.dtype);
        EXPECT_EQ(dtype == TARTAN_F32 ? 4 : 8, k.bytes);
        EXPECT_LE(k.product.lanes, TARTAN_I_MAX_LANES);
        EXPECT_TRUE(k.product.strip && k.product.peak && k.transpose && k.scale && k.dot);
        EXPECT_TRUE(k.load[dtype] && k.store[dtype] && k.commit[dtype]);
        EXPECT_EQ(dtype == TARTAN_F32, k.load[TARTAN_F16] && k.store[TARTAN_F16] && k.commit[TARTAN_F16]);
        EXPECT_EQ(dtype == TARTAN_F32, k.load[TARTAN_BF16] && k.store[TARTAN_BF16] && k.commit[TARTAN_BF16]);
        for (int64_t rows : k.product.rows) EXPECT_TRUE(rows >= 1 && rows <= TARTAN_I_STRIP_ROWS);
    }
}

TEST_P(Kernels, PeakIsARateAboveZero) {
    for (int32_t dtype : {TARTAN_F32, TARTAN_F64}) {
        tartan_i_kernels k;
        tartan_i_kernels_fill(GetParam(), dtype, &k);
        const double rate = tartan_i_product_peak(&k.product);
        EXPECT_GT(rate, 0.001);
        EXPECT_LT(rate, 10000);
    }
}

// The best set that is detected and known is among those that the tests above run on, and so is portable C.
TEST(KernelSets, AreAllThatThisCpuHas) {
    const std::vector<tartan_i_cpu_features> sets = tartan_test::feature_sets();
    EXPECT_EQ(0u, sets.front());
    tartan_i_cpu_features used = 0;
    for (const tartan_i_cpu_features set : sets) {
        for (int32_t factor : {TARTAN_F32, TARTAN_BF16}) {
            tartan_i_kernels k;
            tartan_i_kernels_fill(set, factor, &k);
            used |= k.uses;
        }
    }
    EXPECT_EQ(tartan_i_cpu_detect() & tartan_i_kernels_known(), used);
}

TEST(KernelSets, InUseAreNamedTruly) {
    for (const tartan_i_cpu_features set : tartan_test::feature_sets()) {
        const tartan_test::WithFeatures with(set);
        tartan_i_cpu_features uses = 0;
        for (int32_t factor : {TARTAN_F32, TARTAN_F64, TARTAN_BF16}) {
            tartan_i_kernels k;
            tartan_i_kernels_fill(set, factor, &k);
            uses |= k.uses;
        }
        char text[64];
        tartan_i_cpu_list(uses, text, sizeof text);
        EXPECT_STREQ(text, tartan_cpu_kernels());
    }
    const tartan_test::WithFeatures all(tartan_i_cpu_detect());
    if (!(tartan_i_kernels_known() & TARTAN_I_CPU_AVX512FP16)) { // detected, perhaps, but without kernels
        EXPECT_EQ(nullptr, std::strstr(tartan_cpu_kernels(), "fp16"));
    }
}

} // namespace
