// SPDX-License-Identifier: Apache-2.0
// Products of f32 as sums of bf16: the kernel in C, that on tiles where the CPU has AMX, and the same one on a model of AMX where it
// has AVX-512. Against sums in f64, and against the kernel in C.
#include "tables.h"

#include <limits>

extern "C" {
#include "core/dtype.h"
#if TARTAN_TEST_TILES_MODEL
void tartan_i_kernels_amx_model_bf16x3(tartan_i_kernels *kernels);
void tartan_i_kernels_amx_model_bf16x6(tartan_i_kernels *kernels);
#endif
}

namespace {

using tartan_test::below;
using tartan_test::Guarded;

enum Place { kC, kModel, kAmx };

struct Kernel {
    Place place;
    int parts;
    bool fill(tartan_i_kernels *k) const {
        const int32_t factor = parts == 2 ? TARTAN_I_BF16X3 : TARTAN_I_BF16X6;
        const tartan_i_cpu_features has = tartan_i_cpu_detect();
        tartan_i_kernels_fill(place == kAmx ? has : 0, factor, k);
        if (place == kAmx) return k->product.uses & TARTAN_I_CPU_AMX;
        if (place == kC) return true;
#if TARTAN_TEST_TILES_MODEL
        if ((has & TARTAN_I_CPU_AVX512) == 0) return false; // even filling the table takes its instructions
        (parts == 2 ? tartan_i_kernels_amx_model_bf16x3 : tartan_i_kernels_amx_model_bf16x6)(k);
        return true;
#else
        return false;
#endif
    }
};

std::vector<Kernel> kernels_here() {
    std::vector<Kernel> found;
    tartan_i_kernels k;
    for (const Place place : {kC, kModel, kAmx})
        for (const int parts : {2, 3})
            if (Kernel{place, parts}.fill(&k)) found.push_back({place, parts});
    return found;
}

class Parts : public ::testing::TestWithParam<Kernel> {
  protected:
    void SetUp() override {
        ASSERT_TRUE(GetParam().fill(&k));
        ASSERT_TRUE((Kernel{kC, GetParam().parts}.fill(&c)));
        parts = GetParam().parts;
    }
    tartan_i_kernels k, c;
    int parts;
};
std::string name_of(const ::testing::TestParamInfo<Kernel> &info) {
    const char *places[] = {"c", "amx_model", "amx"};
    return std::string(places[info.param.place]) + (info.param.parts == 2 ? "_bf16x3" : "_bf16x6");
}
INSTANTIATE_TEST_SUITE_P(Each, Parts, ::testing::ValuesIn(kernels_here()), name_of);

double part(uint32_t pair, size_t i) {
    return tartan_i_f32_of_bf16((uint16_t)(i % 2 ? pair >> 16 : pair));
}

// What the parts of x lack of it, besides what bf16 cannot hold because it is too small.
double split_bound(int parts, double x) {
    return (parts == 2 ? 0x1p-17 * std::fabs(x) : 0) + 0x1p-134;
}

// Any finite number that does not round to infinity.
float any_number(std::mt19937_64 &random) {
    for (;;) {
        const uint32_t bits = (uint32_t)random();
        if ((bits & 0x7fffffff) < 0x7f7f8000)
            return tartan_i_f32_of_bits(random() % 8 ? bits : bits & 0xffff0000);
    }
}

TEST_P(Parts, AddUpToTheNumber) {
    std::mt19937_64 random(3);
    for (uint64_t round = 0; round < tartan_test::rounds(1000u); round++) {
        const size_t n = below(random, 140), step = n + below(random, 3), pairs = (n + 1) / 2;
        std::vector<float> even(n + 1), odd(n + 1);
        for (auto *line : {&even, &odd})
            for (float &x : *line) x = any_number(random);
        Guarded<uint32_t> rows((size_t)parts * step, round % 3), row((size_t)parts * (pairs + 2), round % 2),
            want(rows), want_row(row);
        k.product.split_rows((int64_t)n, even.data() + 1, odd.data() + 1, rows.data(), (int64_t)step);
        k.product.split_row((int64_t)n, even.data() + 1, row.data(), (int64_t)pairs + 2);
        c.product.split_rows((int64_t)n, even.data() + 1, odd.data() + 1, want.data(), (int64_t)step);
        c.product.split_row((int64_t)n, even.data() + 1, want_row.data(), (int64_t)pairs + 2);
        ASSERT_TRUE(rows.intact() && row.intact());
        EXPECT_SAME_BITS((size_t)parts * step, rows.data(), want.data());
        EXPECT_SAME_BITS((size_t)parts * (pairs + 2), row.data(), want_row.data());
        for (size_t i = 0; i < n; i++) {
            double x = even[1 + i], y = odd[1 + i], z = x;
            for (size_t p = 0; p < (size_t)parts; p++) {
                for (double *rest : {&x, &y}) { // the nearest number of 8 bits
                    const double head = part(rows.data()[p * step + i], rest == &y);
                    ASSERT_LE(std::fabs(*rest - head), std::fmax(std::fabs(*rest) * 0x1p-8, 0x1p-134));
                    *rest -= head;
                }
                z -= part(row.data()[p * (pairs + 2) + i / 2], i % 2);
            }
            ASSERT_LE(std::fabs(x), split_bound(parts, even[1 + i]));
            ASSERT_LE(std::fabs(y), split_bound(parts, odd[1 + i]));
            ASSERT_EQ(x, z);
        }
        EXPECT_EQ(0, n % 2 ? part(row.data()[pairs - 1], 1) : 0) << "behind the end";
        if (HasFailure()) return;
    }
}

TEST_P(Parts, NoNumberIsMadeOfNone) {
    const uint32_t none[] = {0x7fc00000, 0x7f800001, 0x7fffffff, 0xffffffff, 0xff800001,
                             0x7f80ffff, 0x7f800000, 0xff800000, 0x7f7fffff, 0xff7f8000};
    for (const uint32_t bits : none) {
        const float x = tartan_i_f32_of_bits(bits), one = 1;
        uint32_t out[3] = {}, row[3] = {};
        k.product.split_rows(1, &x, &one, out, 1);
        EXPECT_EQ(std::isnan(x), std::isnan(part(out[0], 0))) << std::hex << bits;
        EXPECT_FALSE(std::isfinite(part(out[0], 0))) << std::hex << bits; // the last two round to infinity
        EXPECT_EQ(1, part(out[0], 1));
        k.product.split_row(1, &x, row, 1);
        EXPECT_EQ((uint16_t)out[0], (uint16_t)row[0]);
    }
}

// A strip with gaps behind every line, and marks around the sums.
struct Strip {
    static constexpr float kMark = -12345.5f;
    int parts;
    int64_t depth, rows, width;     // units of a term; lines of the factors
    std::vector<float> left, right; // [4 terms][rows][2 depth], [4 terms][2 depth][width]
    std::vector<uint32_t> a, b;
    std::vector<float> start;
    std::vector<tartan_i_term> terms;
    std::vector<int64_t> of; // which of the four a term has of each factor: a + 4 b
    tartan_i_strip strip = {};
    int calls = 0; // of `meanwhile`

    Strip(const tartan_i_product &p, uint64_t seed, bool integers) : parts((int)p.parts) {
        std::mt19937_64 random(seed);
        strip.tile_rows = 1 + (int64_t)below(random, (size_t)p.most_tile_rows);
        strip.tile_units = 1 + (int64_t)below(random, (size_t)p.most_tile_units);
        strip.rows = strip.tile_rows * (1 + (int64_t)below(random, 2));
        depth = strip.tile_units * (1 + (int64_t)below(random, 3));
        strip.row = (int64_t)below(random, 3);
        strip.width = p.lanes * (1 + (int64_t)below(random, (size_t)p.vectors));
        strip.a_row = depth + (int64_t)below(random, 3), strip.a_col = 1;
        strip.b_row = strip.width + (int64_t)below(random, 3);
        strip.sums_row = strip.width + (int64_t)below(random, 3);
        strip.first = random() % 2;
        rows = strip.row + strip.rows, width = strip.width;
        left.resize((size_t)(4 * rows * 2 * depth)), right.resize((size_t)(4 * 2 * depth * width));
        for (auto *v : {&left, &right})
            for (float &x : *v)
                x = integers
                        ? (float)(int)below(random, 17) - 8
                        : (float)std::ldexp((double)(int64_t)random() * 0x1p-63, (int)below(random, 20) - 10);
        a.resize((size_t)(4 * rows * parts * strip.a_row)),
            b.resize((size_t)(4 * depth * parts * strip.b_row));
        for (int64_t i = 0; i < 4 * rows; i++)
            p.split_row(2 * depth, &left[(size_t)(i * 2 * depth)], &a[(size_t)(i * parts * strip.a_row)],
                        strip.a_row);
        for (int64_t i = 0; i < 4 * depth; i++)
            p.split_rows(width, &right[(size_t)(2 * i * width)], &right[(size_t)((2 * i + 1) * width)],
                         &b[(size_t)(i * parts * strip.b_row)], strip.b_row);
        strip.b = b.data();
        const size_t nterms = below(random, 5);
        for (size_t i = 0; i < nterms; i++) {
            of.push_back((int64_t)below(random, 16));
            tartan_i_term t = {};
            t.a = &a[(size_t)(of[i] % 4 * rows * parts * strip.a_row)], t.b = of[i] / 4 * depth, t.k = depth;
            terms.push_back(t);
        }
        start.assign((size_t)(strip.rows * strip.sums_row) + 32, kMark);
        for (int64_t i = 0; i < strip.rows; i++)
            for (int64_t j = 0; j < width; j++)
                start[16 + (size_t)(i * strip.sums_row + j)] = integers ? 3.f : 0.125f;
        strip.meanwhile = [](void *self) { ((Strip *)self)->calls++; };
        strip.other = this;
    }
    std::vector<float> run(const tartan_i_product &p, size_t cut) {
        std::vector<float> out = start;
        tartan_i_strip s = strip;
        s.sums = out.data() + 16;
        if (p.begin != nullptr) p.begin(s.tile_rows, s.tile_units);
        p.strip(&s, terms.data(), (int64_t)cut);
        s.first = false;
        if (cut < terms.size()) p.strip(&s, terms.data() + cut, (int64_t)(terms.size() - cut));
        if (p.end != nullptr) p.end();
        return out;
    }
    // The bound of docs/numerics.md, and the sum.
    double exact(int64_t i, int64_t j, double *bound) const {
        double sum = strip.first ? 0 : start[16 + (size_t)(i * strip.sums_row + j)], size = std::fabs(sum);
        for (const int64_t which : of)
            for (int64_t e = 0; e < 2 * depth; e++) {
                const double x = left[(size_t)(((which % 4 * rows) + strip.row + i) * 2 * depth + e)],
                             y = right[(size_t)((which / 4 * 2 * depth + e) * width + j)];
                sum += x * y, size += std::fabs(x * y);
            }
        const double terms_of = (double)of.size() * 2 * (double)depth;
        *bound = ((parts == 2 ? 0x1p-15 : 0x1.01p-24) +
                  (8 + 2 * std::sqrt(terms_of)) * (double)std::numeric_limits<float>::epsilon()) *
                 size;
        return sum;
    }
    void check(const std::vector<float> &got, bool integers) const {
        for (size_t at = 0; at < got.size(); at++) {
            const int64_t place = (int64_t)at - 16, i = place / strip.sums_row, j = place % strip.sums_row;
            if (place < 0 || i >= strip.rows || j >= width) {
                ASSERT_EQ(start[at], got[at]) << "written beside the sums";
                continue;
            }
            double bound;
            const double sum = exact(i, j, &bound);
            ASSERT_LE(std::fabs(got[at] - sum), integers ? 0 : bound) << i << ", " << j;
        }
    }
};

TEST_P(Parts, StripsAreWithinTheBoundAndWriteNothingElse) {
    for (uint64_t seed = 0; seed < tartan_test::rounds(1000u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const bool integers = seed % 3 == 0; // of few bits: their sums are exact
        Strip s(k.product, seed, integers);
        const std::vector<float> whole = s.run(k.product, s.terms.size());
        s.check(whole, integers);
        EXPECT_EQ((int)s.terms.size(), s.calls);
        // A list cut in two gives the same bits.
        const std::vector<float> halves = s.run(k.product, s.terms.size() / 2);
        EXPECT_EQ(0, std::memcmp(whole.data(), halves.data(), whole.size() * sizeof(float)));
        // So does the kernel in C, but where the CPU itself decides how it adds up.
        const std::vector<float> want = s.run(c.product, s.terms.size());
        if (GetParam().place != kAmx) {
            EXPECT_EQ(0, std::memcmp(whole.data(), want.data(), whole.size() * sizeof(float)));
        }
        if (HasFailure()) return;
    }
}

// What makes a sum infinite or NaN shows; numbers below 2^-126, and their parts, may count as zeros.
TEST_P(Parts, SpecialNumbers) {
    const float inf = INFINITY, largest = std::numeric_limits<float>::max();
    const struct {
        float x, y;
        bool finite;
        double want, lost;
    } cases[] = {{inf, 2, false, 0, 0},
                 {-inf, 1.2345f, false, 0, 0},
                 {inf, 0, false, 0, 0},
                 {NAN, 1, false, 0, 0},
                 {NAN, 0, false, 0, 0},
                 {largest, 1, false, 0, 0}, // as bf16 it is infinite: it has to be computed again
                 {0x1p127f, 4, false, 0, 0},
                 {0x1.fep127f, 1, true, 0x1.fep127, 0},
                 {0x1.234p-130f, 1, true, 0x1.234p-130, 0x1p-125},
                 {0x1.234p-126f, 1, true, 0x1.234p-126, 0x1p-125},
                 {0x1.234p-100f, 0x1.8p-26f, true, 0x1.234p-100 * 0x1.8p-26, 0x1p-125},
                 {-0.f, 1, true, 0, 0}};
    for (const auto &of : cases) {
        Strip s(k.product, 1, true);
        s.strip.first = true;
        std::fill(s.a.begin(), s.a.end(), 0), std::fill(s.b.begin(), s.b.end(), 0);
        s.terms.resize(1), s.terms[0] = {s.a.data(), 0, s.depth};
        // The last of the first row, and of the first column.
        const float left[] = {0, of.x}, none = 0;
        k.product.split_row(2, left, &s.a[(size_t)(s.strip.row * s.parts * s.strip.a_row + s.depth - 1)],
                            s.strip.a_row);
        k.product.split_rows(1, &none, &of.y, &s.b[(size_t)((s.depth - 1) * s.parts * s.strip.b_row)],
                             s.strip.b_row);
        const std::vector<float> got = s.run(k.product, 1);
        SCOPED_TRACE(::testing::Message() << of.x << " * " << of.y << " = " << got[16]);
        EXPECT_EQ(of.finite, std::isfinite(got[16]));
        EXPECT_EQ(of.finite, k.product.finite(s.strip.rows, s.width, got.data() + 16, s.strip.sums_row));
        if (of.finite) {
            EXPECT_LE(std::fabs(got[16] - of.want), of.lost + 0x1p-15 * std::fabs(of.want));
        }
    }
}

TEST_P(Parts, EverySumThatIsNotFiniteIsFound) {
    for (int64_t n = 1; n < 40; n++)
        for (int64_t rows = 1; rows < 4; rows++)
            for (const float x : {INFINITY, -INFINITY, NAN, -NAN}) {
                const int64_t row = n + n % 3;
                std::vector<float> sums((size_t)(rows * row + 1), std::numeric_limits<float>::max());
                EXPECT_TRUE(k.product.finite(rows, n, sums.data(), row));
                for (int64_t at = 0; at <= rows * row; at++) {
                    std::vector<float> some = sums;
                    some[(size_t)at] = x;
                    ASSERT_EQ(at / row >= rows || at % row >= n, k.product.finite(rows, n, some.data(), row));
                }
            }
}

TEST_P(Parts, PeakIsARateAboveZero) {
    const double rate = tartan_i_product_peak(&k.product);
    EXPECT_GT(rate, 1e-4);
    EXPECT_LT(rate, 100000);
}

} // namespace
