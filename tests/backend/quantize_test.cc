// SPDX-License-Identifier: Apache-2.0
// Formats of few bits on every backend, against numbers made one by one and against the conversions of other dtypes.
#include "called.h"

extern "C" {
#include "core/dtype.h"
#include "core/random.h"
}

#include <cmath>

namespace {

using namespace tartan_test;

enum Rounding { kNearest, kEven, kStochastic };
const char *const kRoundings[] = {"nearest", "even", "stochastic"};

struct Format {
    int ebits, fbits;
    double emax = NAN, emin = NAN, largest = NAN;
    bool denormals = true, saturate = true;

    std::string text(const std::string &prefix = "") const {
        std::string all =
            " " + prefix + "ebits=" + std::to_string(ebits) + " " + prefix + "fbits=" + std::to_string(fbits);
        char number[64];
        const std::pair<const char *, double> given[] = {
            {"emax", emax}, {"emin", emin}, {"largest", largest}};
        for (const auto &[name, value] : given)
            if (!std::isnan(value)) {
                std::snprintf(number, sizeof number, "%s%s=%.17g", prefix.c_str(), name, value);
                all += std::string(" ") + number;
            }
        return all + (denormals ? "" : " flush=1") + (saturate ? "" : " infinite=1");
    }
    int last() const { return std::isnan(emax) ? (1 << (ebits - 1)) - 1 : (int)emax; }
    int first() const { return std::isnan(emin) ? last() - (1 << ebits) + 2 : (int)emin; }
    double most() const {
        return std::isnan(largest) ? std::ldexp(2 - std::ldexp(1, -fbits), last()) : largest;
    }
};

// Rounds x to a number of the format by comparing its two neighbours with its own exponent.
double quantized(double x, const Format &f, Rounding rounding, double u) {
    if (std::isnan(x) || x == 0) return x;
    const double size = std::fabs(x);
    double found;
    if (std::isinf(size)) {
        found = INFINITY;
    } else {
        int exponent = std::ilogb(size);
        if (f.denormals && exponent < f.first()) exponent = f.first();
        const double unit = std::ldexp(1, exponent - f.fbits), down = std::floor(size / unit) * unit,
                     part = size / unit - std::floor(size / unit);
        const bool odd = std::fmod(std::floor(size / unit), 2) == 1;
        const bool up = rounding == kNearest ? part >= 0.5
                        : rounding == kEven  ? part > 0.5 || (part == 0.5 && odd)
                                             : u < part;
        found = up ? down + unit : down;
        if (!f.denormals && found < std::ldexp(1, f.first())) found = 0;
    }
    if (found > f.most()) found = f.saturate ? f.most() : INFINITY;
    return std::copysign(found, x);
}

double fraction(uint64_t seed, uint32_t stream, uint64_t number, int32_t dtype) {
    uint32_t words[4];
    tartan_i_philox(seed, stream, number / 4, 0, words);
    const uint32_t word = words[number % 4];
    return tartan_i_sum_dtype(dtype) == TARTAN_F64 ? word * 0x1p-32 : (word >> 8) * 0x1p-24;
}

// Numbers of all sizes that formats know, powers of two and ties, infinities and NaN.
double any_number(std::mt19937_64 &random, const Format &f, int32_t dtype) {
    const int kind = (int)below(random, 12);
    if (kind == 0)
        return pick<double>(random, {0.0, -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN, 3e38});
    const int exponent =
        (int)below(random, (uint64_t)(f.last() - f.first() + f.fbits + 6)) + f.first() - f.fbits - 3;
    double m = 1 + (double)(random() % (1u << 23)) * 0x1p-23;
    if (kind < 5)
        m = 1 + (double)below(random, 2ull << f.fbits) * std::ldexp(1, -f.fbits - 1); // a number or a tie
    const double x = std::ldexp(m, exponent) * (random() % 2 ? 1 : -1);
    return rounded(dtype, x);
}

const Format kFormats[] = {{4, 3},
                           {5, 2},
                           {3, 0},
                           {1, 4},
                           {2, 2},
                           {6, 9, 3, -60, NAN, false},
                           {6, 10, 3, -60, NAN, false, false},
                           {4, 3, 8, NAN, 448, true, false},
                           {5, 10, NAN, -14, NAN, true, false},
                           {4, 7, -20},
                           {4, 3, 11, NAN, NAN, false},
                           {5, 22, 3}};

class BackendQuantize : public OnBackend {
  protected:
    Operand operand(const Format &f, int32_t dtype, const std::vector<int64_t> &shape,
                    std::mt19937_64 &random) {
        Dense d(dtype, shape, (Style)below(random, kStyles));
        for (int64_t i = 0; i < d.elements(); i++) d.set(i, any_number(random, f, dtype));
        return {context.get(), d};
    }
};
INSTANTIATE_TEST_SUITE_P(Each, BackendQuantize, ::testing::ValuesIn(backends()),
                         [](const auto &backend) { return backend.param; });

void expect_number(double want, double got, int64_t i, double from) {
    if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got)) << i;
    } else {
        ASSERT_EQ(want, got) << i << ", from " << from;
        ASSERT_EQ(std::signbit(want), std::signbit(got)) << i << ", from " << from;
    }
}

TEST_P(BackendQuantize, GivesTheNumbersOfFormats) {
    std::mt19937_64 random(1);
    for (int round = 0; round < rounds(300); round++) {
        const Format &f = kFormats[round % (int)std::size(kFormats)];
        const Rounding rounding = (Rounding)(round / 5 % 3);
        const int32_t dtype = kDtypes[round % 7 % 4];
        const bool back = round % 2;
        const int64_t seed = (int64_t)(random() >> 1),
                      offset = pick<int64_t>(random, {0, 1, 2, 7, (int64_t)1 << 34});
        SCOPED_TRACE(f.text() + " " + kRoundings[rounding] + ", round " + std::to_string(round));
        const std::vector<int64_t> shape = round % 5 == 0 ? std::vector<int64_t>{5001} : any_shape(random, 0);
        Operand x = operand(f, dtype, shape, random);
        Operand y(context.get(),
                  Dense(back ? like_dtype(dtype, random) : dtype, shape, (Style)below(random, kRepeated)));
        const std::string options = f.text(back ? "gradient_" : "") + " rounding=" + kRoundings[rounding] +
                                    " seed=" + std::to_string(seed) + " offset=" + std::to_string(offset);
        RUN_OR_NEXT(
            call(context.get(), back ? "quantize_gradient" : "quantize", {x.array(), y.array()}, options));
        const Dense got = y.got();
        for (int64_t i = 0; i < got.elements(); i++) {
            const double u =
                fraction((uint64_t)seed, back ? TARTAN_I_STREAM_QUANTIZE_GRADIENT : TARTAN_I_STREAM_QUANTIZE,
                         (uint64_t)(offset + i), dtype);
            const double in = x.dense.get(i);
            expect_number(rounded(got.array.dtype, quantized(in, f, rounding, u)), got.get(i), i, in);
            if (HasFatalFailure()) return;
        }
        EXPECT_TRUE(marks_intact(got));
    }
}

// The conversions of other dtypes give the same numbers.
TEST_P(BackendQuantize, KnowsTheFormatsOfDtypes) {
    const std::pair<int32_t, Format> dtypes[] = {{TARTAN_BF16, {8, 7, NAN, -126, NAN, true, false}},
                                                 {TARTAN_F16, {5, 10, NAN, -14, NAN, true, false}},
                                                 {TARTAN_F8E5M2, {5, 2, NAN, -14, NAN, true, false}},
                                                 {TARTAN_F8E4M3, {4, 3, 8, NAN, 448, true, false}}};
    std::mt19937_64 random(2);
    for (const auto &[dtype, f] : dtypes) {
        SCOPED_TRACE(tartan_dtype_name(dtype));
        Dense in(TARTAN_F32, {100000});
        for (int64_t i = 0; i < in.elements(); i++) in.set(i, any_number(random, f, TARTAN_F32));
        Operand x(context.get(), in), y(context.get(), Dense(TARTAN_F32, {100000}));
        RUN_OR_NEXT(call(context.get(), "quantize", {x.array(), y.array()}, "rounding=even" + f.text()));
        const Dense got = y.got();
        int64_t different = 0;
        for (int64_t i = 0; i < in.elements(); i++) {
            uint16_t room = 0;
            tartan_i_store(&room, dtype, 0, in.get(i));
            const double want = tartan_i_load(&room, dtype, 0);
            if (dtype == TARTAN_F8E4M3 && std::fabs(in.get(i)) > 448) continue; // which has no infinity
            expect_number(want, got.get(i), i, in.get(i));
            if (HasFatalFailure()) return;
            different += want != in.get(i);
        }
        EXPECT_LT(in.elements() / 4, different);
    }
}

// The formats in which openai/blocksparse keeps moments: their largest numbers and their smallest.
TEST_P(BackendQuantize, KnowsTheFormatsOfMoments) {
    Dense in(TARTAN_F32, {4});
    const double numbers[] = {100, -100, 8.6e-19, 8.7e-19};
    for (int64_t i = 0; i < 4; i++) in.set(i, numbers[i]);
    const std::pair<const char *, double> formats[] = {{"fbits=9", 15.984375}, {"fbits=10", 15.9921875}};
    for (const auto &[text, most] : formats) {
        Operand x(context.get(), in), y(context.get(), in);
        const tartan_status status = call(context.get(), "quantize", {x.array(), y.array()},
                                          std::string("flush=1 ebits=6 emax=3 emin=-60 ") + text);
        if (is_refused(status)) return;
        ASSERT_OK(status);
        const Dense got = y.got();
        EXPECT_EQ(most, got.get(0));
        EXPECT_EQ(-most, got.get(1));
        EXPECT_EQ(0, got.get(2));
        EXPECT_LT(0, got.get(3));
    }
}

TEST_P(BackendQuantize, StochasticRoundingKeepsTheMean) {
    const int64_t n = 200000;
    Dense in(TARTAN_F32, {n});
    for (int64_t i = 0; i < n; i++) in.set(i, 1.03125); // a quarter of the way from 1 to 1.125
    Operand x(context.get(), in), y(context.get(), in);
    const tartan_status status =
        call(context.get(), "quantize", {x.array(), y.array()}, "rounding=stochastic seed=5");
    if (is_refused(status)) return;
    ASSERT_OK(status);
    const Dense got = y.got();
    int64_t up = 0;
    for (int64_t i = 0; i < n; i++) {
        ASSERT_TRUE(got.get(i) == 1 || got.get(i) == 1.125);
        up += got.get(i) != 1;
    }
    EXPECT_NEAR(0.25, (double)up / (double)n, 0.004); // 4 standard deviations
}

TEST_P(BackendQuantize, StraightThroughUnlessTheGradientHasAFormat) {
    std::mt19937_64 random(3);
    Operand x = operand(kFormats[0], TARTAN_F32, {500}, random), y(context.get(), Dense(TARTAN_F32, {500}));
    const tartan_status status =
        call(context.get(), "quantize_gradient", {x.array(), y.array()}, "rounding=stochastic");
    if (is_refused(status)) return;
    ASSERT_OK(status);
    const Dense got = y.got();
    for (int64_t i = 0; i < 500; i++) expect_number(x.dense.get(i), got.get(i), i, x.dense.get(i));
}

TEST_P(BackendQuantize, StatisticsInOnePass) {
    std::mt19937_64 random(4);
    for (int round = 0; round < rounds(40); round++) {
        SCOPED_TRACE(round);
        const Format &f = kFormats[round % (int)std::size(kFormats)];
        const int32_t dtype = kDtypes[round % 4];
        std::vector<int64_t> shape = round % 3 == 0
                                         ? std::vector<int64_t>{pick<int64_t>(random, {0, 1, 8193, 100001})}
                                         : any_shape(random, 0);
        Dense d(dtype, shape, (Style)below(random, kStyles));
        const double most = std::fmin(4 * f.most(), 60000);
        d.fill(random, -most, most);
        for (int64_t i = 0; i < d.elements(); i += 3)
            d.set(i, rounded(dtype, std::ldexp(d.get(i) / most, f.first() - f.fbits)));
        Operand x(context.get(), d),
            out(context.get(), Dense(TARTAN_F64, {5}, (Style)below(random, kRepeated)));
        Format only = f;
        only.saturate = true;
        RUN_OR_NEXT(call(context.get(), "quantize_stats", {x.array(), out.array()}, only.text()));
        const Dense got = out.got();
        long double sum = 0, squares = 0, large = 0, small = 0, top = 0;
        const double least = std::ldexp(1, f.first() - (f.denormals ? f.fbits : 0));
        const int64_t n = d.elements();
        for (int64_t i = 0; i < n; i++) {
            const long double size = std::fabs(d.get(i));
            sum += size, large += size > f.most(), small += size > 0 && size < least,
                top = std::fmax(top, size);
        }
        const long double terms = n > 0 ? n : 1, mean = sum / terms;
        for (int64_t i = 0; i < n; i++)
            squares += (std::fabs(d.get(i)) - mean) * (std::fabs(d.get(i)) - mean);
        const double deviation = (double)std::sqrt(squares / terms);
        EXPECT_EQ((double)top, got.get(0));
        EXPECT_NEAR((double)mean, got.get(1), 1e-13 * (double)mean);
        EXPECT_NEAR(deviation, got.get(2), 1e-6 * (double)mean);
        EXPECT_NEAR((double)(large / terms), got.get(3), 1e-15);
        EXPECT_NEAR((double)(small / terms), got.get(4), 1e-15);
    }
}

TEST_P(BackendQuantize, StatisticsOfNoNumbers) {
    Dense d(TARTAN_F32, {3});
    d.set(0, NAN), d.set(1, -4), d.set(2, INFINITY);
    Operand x(context.get(), d), out(context.get(), Dense(TARTAN_F64, {5}));
    const tartan_status status = call(context.get(), "quantize_stats", {x.array(), out.array()});
    if (is_refused(status)) return;
    ASSERT_OK(status);
    const Dense got = out.got();
    EXPECT_EQ(INFINITY, got.get(0));
    EXPECT_TRUE(std::isnan(got.get(1)));
    EXPECT_TRUE(std::isnan(got.get(2)));
    EXPECT_NEAR(1 / 3.0, got.get(3), 1e-15);
    EXPECT_EQ(0, got.get(4));
}

TEST(Quantize, RefusesFormatsThatNumbersCannotHold) {
    Dense x(TARTAN_F32, {3}), y(TARTAN_F32, {3}), stats(TARTAN_F64, {5});
    const auto run = [&](const std::string &options) {
        return call(cpu(), "quantize", {&x.array, &y.array}, options);
    };
    EXPECT_FAILS(ARGUMENT, "quantize: emax is 1023, expected a whole number from -149 to 127, for float32",
                 run("ebits=11"));
    EXPECT_FAILS(ARGUMENT, "emax is 1.5, expected a whole number", run("emax=1.5"));
    EXPECT_FAILS(ARGUMENT, "emin is -148, expected a whole number from -146 to 7, for float32",
                 run("emin=-148"));
    EXPECT_FAILS(ARGUMENT, "emin is 8, expected a whole number from -146 to 7", run("emin=8"));
    EXPECT_FAILS(ARGUMENT, "largest is 250, expected a number of the format, at most 240",
                 run("largest=250"));
    EXPECT_FAILS(ARGUMENT, "largest is 500, expected a number of the format, at most 480",
                 run("emax=8 largest=500"));
    EXPECT_FAILS(ARGUMENT, "gradient_emax is 1023, expected", run("gradient_ebits=11"));
    EXPECT_FAILS(ARGUMENT, "quantize_gradient: gradient_emax is 1023, expected",
                 call(cpu(), "quantize_gradient", {&x.array, &y.array}, "gradient_ebits=11"));
    EXPECT_FAILS(ARGUMENT, "quantize_stats: emax is 1023, expected",
                 call(cpu(), "quantize_stats", {&x.array, &stats.array}, "ebits=11"));
}

} // namespace
