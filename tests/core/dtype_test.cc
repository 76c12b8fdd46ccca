// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <cmath>
#include <cstring>
#include <limits>

extern "C" {
#include "core/dtype.h"
}

namespace {

const double infinity = std::numeric_limits<double>::infinity();
const double nan64 = std::numeric_limits<double>::quiet_NaN();
const int32_t kAll[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16, TARTAN_F8E4M3, TARTAN_F8E5M2};

// A 16-bit format, its value by definition, and the conversions under test.
struct Format {
    const char *name;
    int exponent_bits, fraction_bits;
    float (*to_f32)(uint16_t);
    uint16_t (*of_f32)(float);
    uint16_t (*of_f64)(double);

    uint16_t infinite() const { return (uint16_t)(((1 << exponent_bits) - 1) << fraction_bits); }
    double value(uint16_t bits) const {
        int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1),
            bias = (1 << (exponent_bits - 1)) - 1;
        int fraction = bits & ((1 << fraction_bits) - 1);
        double size = exponent == 0
                          ? std::ldexp(fraction, 1 - bias - fraction_bits)
                          : std::ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
        if ((bits & 0x7fff) == infinite()) size = infinity;
        if ((bits & 0x7fff) > infinite()) size = nan64;
        return bits & 0x8000 ? -size : size;
    }
};

const Format formats[] = {
    {"f16", 5, 10, tartan_i_f32_of_f16, tartan_i_f16_of_f32, tartan_i_f16_of_f64},
    {"bf16", 8, 7, tartan_i_f32_of_bf16, tartan_i_bf16_of_f32, tartan_i_bf16_of_f64},
};

uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

class Halves : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(Dtype, Halves, testing::ValuesIn(formats),
                         [](const auto &info) { return info.param.name; });

TEST_P(Halves, EveryValueIsExactInF32AndComesBack) {
    const Format &f = GetParam();
    for (int b = 0; b < 65536; b++) {
        uint16_t bits = (uint16_t)b;
        double value = f.value(bits);
        float converted = f.to_f32(bits);
        if (std::isnan(value)) {
            ASSERT_TRUE(std::isnan(converted)) << b;
            ASSERT_GT(f.of_f32(converted) & 0x7fff, f.infinite()) << b;
            ASSERT_GT(f.of_f64(converted) & 0x7fff, f.infinite()) << b;
            ASSERT_EQ(bits & 0x8000, f.of_f32(converted) & 0x8000) << b;
            continue;
        }
        ASSERT_EQ(bits_of((float)value), bits_of(converted)) << b; // zeros keep their sign
        ASSERT_EQ(bits, f.of_f32(converted)) << b;
        ASSERT_EQ(bits, f.of_f64(value)) << b;
    }
}

// Between each pair of neighbours, the last pair being the largest number and what would follow it.
TEST_P(Halves, RoundsToNearestEvenOnce) {
    const Format &f = GetParam();
    for (int b = 0; b < f.infinite(); b++) {
        uint16_t low = (uint16_t)b, high = (uint16_t)(b + 1), even = b % 2 ? high : low;
        double lower = f.value(low),
               upper = high == f.infinite() ? 2 * lower - f.value((uint16_t)(b - 1)) : f.value(high);
        double middle = lower + (upper - lower) / 2;
        for (uint16_t sign : {0, 0x8000}) {
            double s = sign ? -1 : 1;
            ASSERT_EQ(sign | even, f.of_f64(s * middle)) << b;
            ASSERT_EQ(sign | low, f.of_f64(s * std::nextafter(middle, 0))) << b;
            ASSERT_EQ(sign | high, f.of_f64(s * std::nextafter(middle, infinity))) << b;
            float middle32 = (float)middle;
            if (middle32 != middle) continue; // below f32's range: the smallest of bf16
            ASSERT_EQ(sign | even, f.of_f32((float)s * middle32)) << b;
            ASSERT_EQ(sign | low, f.of_f32((float)s * std::nextafterf(middle32, 0))) << b;
            ASSERT_EQ(sign | high, f.of_f32((float)s * std::nextafterf(middle32, (float)infinity))) << b;
        }
    }
}

TEST_P(Halves, ExtremesOfF64) {
    const Format &f = GetParam();
    for (double huge : {1e300, 1e39, std::numeric_limits<double>::max(), infinity}) {
        EXPECT_EQ(f.infinite(), f.of_f64(huge));
        EXPECT_EQ(f.infinite() | 0x8000, f.of_f64(-huge));
    }
    for (double tiny : {1e-300, 5e-324, 1e-46, 0.0}) {
        EXPECT_EQ(0, f.of_f64(tiny));
        EXPECT_EQ(0x8000, f.of_f64(-tiny));
    }
    EXPECT_GT(f.of_f64(nan64) & 0x7fff, f.infinite());
    uint32_t signalling = 0x7f800001; // the payload does not reach the upper bits
    float x;
    memcpy(&x, &signalling, sizeof x);
    EXPECT_GT(f.of_f32(x) & 0x7fff, f.infinite());
}

// Every f32 that lies near a change of exponent or fraction of either format, and many others.
TEST_P(Halves, AgreesWithTheNeighboursForManyF32) {
    const Format &f = GetParam();
    for (uint64_t u = 0; u < (1u << 31); u += 997) {
        uint32_t bits = (uint32_t)u;
        float x;
        memcpy(&x, &bits, sizeof x);
        if (std::isnan(x)) continue;
        uint16_t h = f.of_f32(x);
        ASSERT_EQ(h, f.of_f64(x)) << u;
        if (h == f.infinite()) {
            ASSERT_GE(x, f.value((uint16_t)(h - 1)));
            continue;
        }
        double error = std::fabs(f.value(h) - (double)x);
        if (h > 0) {
            ASSERT_LE(error, std::fabs(f.value((uint16_t)(h - 1)) - (double)x)) << u;
        }
        if (h + 1 < f.infinite()) {
            ASSERT_LE(error, std::fabs(f.value((uint16_t)(h + 1)) - (double)x)) << u;
        }
    }
}

// An 8-bit format of the Open Compute Project's specification, its value by definition, and the conversions under test.
struct Eight {
    const char *name;
    int32_t dtype;
    int exponent_bits, fraction_bits, largest, overflow; // codes of the largest number, and of what is beyond
    float (*to_f32)(uint8_t);
    uint8_t (*of_f32)(float);
    uint8_t (*of_f64)(double);

    double value(int code) const {
        const int size = code & 0x7f, exponent = size >> fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
        const int fraction = size & ((1 << fraction_bits) - 1);
        if (size > largest && !(exponent_bits == 5 && size == 0x7c)) return nan64;
        double v = std::ldexp(fraction + (exponent ? 1 << fraction_bits : 0),
                              (exponent ? exponent : 1) - bias - fraction_bits);
        if (size > largest) v = infinity;
        return code & 0x80 ? -v : v;
    }
};

const Eight eights[] = {
    {"e4m3", TARTAN_F8E4M3, 4, 3, 0x7e, 0x7f, tartan_i_f32_of_e4m3, tartan_i_e4m3_of_f32,
     tartan_i_e4m3_of_f64},
    {"e5m2", TARTAN_F8E5M2, 5, 2, 0x7b, 0x7c, tartan_i_f32_of_e5m2, tartan_i_e5m2_of_f32,
     tartan_i_e5m2_of_f64},
};

class Eights : public testing::TestWithParam<Eight> {};
INSTANTIATE_TEST_SUITE_P(Dtype, Eights, testing::ValuesIn(eights),
                         [](const auto &info) { return info.param.name; });

TEST_P(Eights, EveryCodeIsExactInF32AndComesBack) {
    const Eight &f = GetParam();
    int nans = 0;
    for (int code = 0; code < 256; code++) {
        const double value = f.value(code);
        const float converted = f.to_f32((uint8_t)code);
        const uint8_t stored = (uint8_t)code;
        const double loaded = tartan_i_load(&stored, f.dtype, 0);
        if (std::isnan(value)) {
            nans++;
            ASSERT_TRUE(std::isnan(converted) && std::isnan(loaded)) << code;
            ASSERT_TRUE(std::isnan(f.value(f.of_f32(converted)))) << code;
            ASSERT_TRUE(std::isnan(f.value(f.of_f64(value)))) << code;
            continue;
        }
        ASSERT_EQ(bits_of((float)value), bits_of(converted)) << code;
        ASSERT_EQ(value, loaded) << code;
        ASSERT_EQ(code, f.of_f32(converted)) << code;
        ASSERT_EQ(code, f.of_f64(value)) << code;
    }
    EXPECT_EQ(f.dtype == TARTAN_F8E4M3 ? 2 : 6, nans);
    EXPECT_EQ(f.dtype == TARTAN_F8E4M3 ? 448 : 57344, f.value(f.largest));
    EXPECT_EQ(f.dtype == TARTAN_F8E4M3 ? 1. / 512 : 1. / 65536, f.value(1));
}

// Between each pair of neighbours, the last pair being the largest number and what would follow it.
TEST_P(Eights, RoundsToNearestEvenOnce) {
    const Eight &f = GetParam();
    for (int low = 0; low <= f.largest; low++) {
        const int high = low + 1, even = low % 2 ? high : low;
        const double lower = f.value(low),
                     upper = low == f.largest ? 2 * lower - f.value(low - 1) : f.value(high);
        const double middle = (lower + upper) / 2;
        for (int sign : {0, 0x80}) {
            const double s = sign ? -1 : 1;
            ASSERT_EQ(sign | even, f.of_f64(s * middle)) << low;
            ASSERT_EQ(sign | low, f.of_f64(s * std::nextafter(middle, 0))) << low;
            ASSERT_EQ(sign | high, f.of_f64(s * std::nextafter(middle, infinity))) << low;
            const float m = (float)middle;
            ASSERT_EQ(sign | even, f.of_f32((float)s * m)) << low;
            ASSERT_EQ(sign | low, f.of_f32((float)s * std::nextafterf(m, 0))) << low;
            ASSERT_EQ(sign | high, f.of_f32((float)s * std::nextafterf(m, (float)infinity))) << low;
        }
    }
}

TEST_P(Eights, Extremes) {
    const Eight &f = GetParam();
    for (double huge : {1e5, 1e20, 1e39, 1e300, std::numeric_limits<double>::max(), infinity}) {
        EXPECT_EQ(f.overflow, f.of_f64(huge));
        EXPECT_EQ(f.overflow | 0x80, f.of_f64(-huge));
        EXPECT_EQ(f.overflow, f.of_f32((float)std::min(huge, 3e38)));
    }
    EXPECT_EQ(f.overflow | 0x80, f.of_f32(-(float)infinity));
    for (double tiny : {1e-6, 1e-40, 1e-300, 5e-324, 0.0}) {
        EXPECT_EQ(0, f.of_f64(tiny));
        EXPECT_EQ(0x80, f.of_f64(-tiny));
        EXPECT_EQ(0, f.of_f32((float)tiny));
    }
    for (uint32_t nan : {0x7fc00000u, 0x7f800001u, 0xffffffffu}) {
        float x;
        memcpy(&x, &nan, sizeof x);
        EXPECT_TRUE(std::isnan(f.value(f.of_f32(x)))) << nan;
    }
}

// A tie of the 8-bit type that a rounding to 16 or 32 bits would make of what lies beside it.
TEST_P(Eights, F64IsRoundedOnce) {
    const Eight &f = GetParam();
    const double tie = 1 + std::ldexp(0.5, -f.fraction_bits), one = f.of_f64(1);
    EXPECT_EQ(one, f.of_f64(tie));
    EXPECT_EQ(one + 1, f.of_f64(tie + 1e-12));
    EXPECT_EQ(one, f.of_f64(tie - 1e-12));
}

TEST(Dtype, LoadAndStore) {
    for (int32_t dtype : kAll) {
        double room[4] = {0, 0, 0, 0};
        tartan_i_store(room, dtype, 1, -1.5);
        tartan_i_store(room, dtype, 2, 0.1);
        EXPECT_EQ(0, tartan_i_load(room, dtype, 0));
        EXPECT_EQ(-1.5, tartan_i_load(room, dtype, 1));
        EXPECT_NEAR(0.1, tartan_i_load(room, dtype, 2), tartan_dtype_bytes(dtype) == 1 ? 1. / 128 : 1e-3);
        EXPECT_EQ(0, tartan_i_load(room, dtype, 3));
    }
    double room[1];
    tartan_i_store(room, TARTAN_F32, 0, 0.1);
    EXPECT_EQ((double)0.1f, tartan_i_load(room, TARTAN_F32, 0));
    EXPECT_EQ(TARTAN_F64, tartan_i_sum_dtype(TARTAN_F64));
    EXPECT_EQ(TARTAN_F32, tartan_i_sum_dtype(TARTAN_BF16));
    EXPECT_EQ(TARTAN_F32, tartan_i_sum_dtype(TARTAN_F8E5M2));
}

// Tiles of every pair of dtypes against element by element, with rows, columns or neither contiguous.
TEST(Dtype, TileCopies) {
    const int64_t rows = 13, cols = 21, room = 4 * rows * cols;
    const int64_t strides[][2] = {{cols, 1},  {1, rows},  {2 * cols, 2}, {cols + 3, 1},
                                  {-cols, 1}, {1, -rows}, {0, 1}};
    std::mt19937_64 random(1);
    for (int32_t to : kAll) {
        for (int32_t from : kAll) {
            for (auto &ts : strides) {
                for (auto &fs : strides) {
                    if (ts[0] == 0) continue;
                    std::vector<double> source((size_t)room), target((size_t)room, 7), expected;
                    for (int64_t i = 0; i < room; i++)
                        tartan_i_store(source.data(), from, i,
                                       std::ldexp((double)random() - 9e18, (int)(random() % 60) - 90));
                    expected = target;
                    for (int64_t r = 0; r < rows; r++) {
                        for (int64_t c = 0; c < cols; c++) {
                            double x = tartan_i_load(source.data(), from, room / 2 + r * fs[0] + c * fs[1]);
                            tartan_i_store(expected.data(), to, room / 2 + r * ts[0] + c * ts[1], x);
                        }
                    }
                    tartan_i_tile_copier(to, from)(tartan_i_at(target.data(), to, room / 2), ts[0], ts[1],
                                                   tartan_i_at(source.data(), from, room / 2), fs[0], fs[1],
                                                   rows, cols);
                    ASSERT_EQ(0, memcmp(expected.data(), target.data(), (size_t)room * 8)) << to << from;
                }
            }
        }
    }
}

TEST(Dtype, TileCopiesOfEqualDtypesKeepTheBitsOfNaNs) {
    std::vector<uint16_t> all(65536), copy(65536);
    for (size_t i = 0; i < all.size(); i++) all[i] = (uint16_t)i;
    for (int32_t dtype : {TARTAN_F16, TARTAN_BF16}) {
        std::fill(copy.begin(), copy.end(), (uint16_t)0);
        tartan_i_tile_copier(dtype, dtype)(copy.data(), 256, 1, all.data(), 256, 1, 256, 256);
        EXPECT_EQ(all, copy);
    }
    for (int32_t dtype : {TARTAN_F8E4M3, TARTAN_F8E5M2}) { // the same memory as bytes
        std::fill(copy.begin(), copy.end(), (uint16_t)0);
        tartan_i_tile_copier(dtype, dtype)(copy.data(), 512, 1, all.data(), 512, 1, 256, 512);
        EXPECT_EQ(all, copy);
    }
    uint32_t signalling = 0x7f800001, same = 0;
    tartan_i_tile_copier(TARTAN_F32, TARTAN_F32)(&same, 1, 1, &signalling, 1, 1, 1, 1);
    EXPECT_EQ(signalling, same);
}

// Indices are copied as they are, as many bytes as they have.
TEST(Dtype, TileCopiesOfIndices) {
    for (const int32_t dtype : {TARTAN_U8, TARTAN_I32, TARTAN_I64}) {
        const size_t bytes = (size_t)tartan_dtype_bytes(dtype);
        std::vector<uint8_t> source(12 * bytes), target(12 * bytes + 16, 7);
        for (size_t i = 0; i < source.size(); i++) source[i] = (uint8_t)(100 + i);
        tartan_i_tile_copier(dtype, dtype)(target.data(), 4, 1, source.data(), 1, 3, 3, 4);
        for (size_t i = 0; i < 12 * bytes; i++) // row i / 4, column i % 4 of what stands by columns
            ASSERT_EQ(source[(i / bytes / 4 + i / bytes % 4 * 3) * bytes + i % bytes], target[i]) << dtype;
        for (size_t i = 12 * bytes; i < target.size(); i++) ASSERT_EQ(7, target[i]) << dtype;
    }
}

// The vector loops and the single conversion say the same for every value of 16 bits.
TEST(Dtype, TileCopiesOfEveryHalf) {
    std::vector<uint16_t> all(65536);
    for (size_t i = 0; i < all.size(); i++) all[i] = (uint16_t)i;
    for (int32_t from : {TARTAN_F16, TARTAN_BF16}) {
        for (int32_t to : kAll) {
            std::vector<double> wide(65536);
            tartan_i_tile_copier(to, from)(wide.data(), 65536, 1, all.data(), 65536, 1, 1, 65536);
            for (int64_t i = 0; i < 65536; i++) {
                double expected[1], x = tartan_i_load(all.data(), from, i),
                                    is = tartan_i_load(wide.data(), to, i);
                tartan_i_store(expected, to, 0, x);
                double should = tartan_i_load(expected, to, 0);
                ASSERT_TRUE(is == should || (std::isnan(is) && std::isnan(should))) << from << to << " " << i;
                ASSERT_EQ(std::signbit(should), std::signbit(is)) << from << to << " " << i;
            }
        }
    }
}

} // namespace
