// SPDX-License-Identifier: Apache-2.0
// Product kernels of factors that are not reals (bf16 by pairs and by tiles), against sums in f64.
#include "feature_sets.h"
#include "support.h"

#include <cmath>
#include <cstring>
#include <limits>

extern "C" {
#include "core/dtype.h"
}

namespace {

size_t below(std::mt19937_64 &random, size_t n) {
    return random() % n;
}

// The sets with such products.
std::vector<tartan_i_cpu_features> sets() {
    std::vector<tartan_i_cpu_features> found;
    for (const tartan_i_cpu_features set : tartan_test::feature_sets()) {
        tartan_i_kernels k;
        tartan_i_kernels_fill(set, TARTAN_BF16, &k);
        if (k.product.factor == TARTAN_BF16) found.push_back(set);
    }
    return found;
}

class Products : public ::testing::TestWithParam<tartan_i_cpu_features> {
  protected:
    void SetUp() override { tartan_i_kernels_fill(GetParam(), TARTAN_BF16, &k); }
    tartan_i_kernels k;
};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Products); // not every CPU has one
INSTANTIATE_TEST_SUITE_P(Each, Products, ::testing::ValuesIn(sets()),
                         [](const auto &set) { return tartan_test::features_name(set.param); });

// A strip with operands at odd addresses, gaps behind every row, and marks around the sums.
struct Strip {
    static constexpr float kMark = -12345.5f;
    int64_t group, depth; // elements of a unit; most units of a term
    std::vector<uint16_t> a, b;
    std::vector<float> sums, start;
    size_t nterms = 0;
    std::vector<tartan_i_term> terms; // and some behind them
    tartan_i_strip strip = {};
    int calls = 0; // of `meanwhile`

    Strip(const tartan_i_product &p, uint64_t seed, bool integers) : group(p.group) {
        std::mt19937_64 random(seed);
        const bool tiles = p.most_tile_rows > 0;
        if (tiles) {
            strip.tile_rows = 1 + (int64_t)below(random, (size_t)p.most_tile_rows);
            strip.tile_units = 1 + (int64_t)below(random, (size_t)p.most_tile_units);
            strip.rows = strip.tile_rows * (1 + (int64_t)below(random, 2));
            depth = strip.tile_units * (1 + (int64_t)below(random, 3));
        } else {
            strip.rows = 1 + (int64_t)below(random, TARTAN_I_STRIP_ROWS);
            depth = 1 + (int64_t)below(random, 40);
        }
        strip.row = (int64_t)below(random, 3);
        strip.width = p.lanes * (1 + (int64_t)below(random, (size_t)p.vectors));
        strip.a_row = depth + (int64_t)below(random, 3), strip.a_col = 1;
        strip.b_row = strip.width + (int64_t)below(random, 3);
        strip.sums_row = strip.width + (int64_t)below(random, 3);
        strip.first = random() % 2;
        nterms = below(random, 5);
        a.resize((size_t)(group * strip.a_row * (strip.row + strip.rows)) * 4 + 1);
        b.resize((size_t)(group * strip.b_row * depth) * 4 + 1);
        for (auto *v : {&a, &b})
            for (auto &x : *v)
                x = integers ? tartan_i_bf16_of_f32((float)(int)(below(random, 17)) - 8)
                             : tartan_i_bf16_of_f32((float)std::ldexp((double)(int64_t)random() * 0x1p-63,
                                                                      (int)below(random, 20) - 10));
        strip.b = b.data() + 1;
        const size_t ahead = below(random, 4); // later terms are only asked for
        strip.ahead_a = (int64_t)below(random, ahead + 1), strip.ahead_b = (int64_t)below(random, ahead + 1);
        strip.ahead_far = (int64_t)below(random, ahead + 1);
        strip.next_row = (int64_t)below(random, 100);
        for (size_t i = 0; i < nterms + ahead; i++) {
            tartan_i_term t = {};
            t.a = a.data() + 1 + below(random, 4) * (a.size() / 4);
            t.b = (int64_t)below(random, 4) * depth;
            t.k = tiles ? depth : (int64_t)below(random, (size_t)depth + 1);
            terms.push_back(t);
        }
        sums.assign((size_t)(strip.rows * strip.sums_row) + 32, kMark);
        for (int64_t i = 0; i < strip.rows; i++)
            for (int64_t j = 0; j < strip.width; j++)
                sums[16 + (size_t)(i * strip.sums_row + j)] = integers ? 3.f : 0.125f;
        start = sums;
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
        if (cut < nterms) p.strip(&s, terms.data() + cut, (int64_t)(nterms - cut));
        if (p.end != nullptr) p.end();
        return out;
    }
    // The sum of one element, and of the absolute values of its terms.
    void exact(int64_t i, int64_t j, double *sum, double *size, int64_t *count) const {
        *sum = strip.first ? 0 : start[16 + (size_t)(i * strip.sums_row + j)];
        *size = std::fabs(*sum), *count = 0;
        for (auto t = terms.begin(); t != terms.begin() + (ptrdiff_t)nterms; ++t)
            for (int64_t e = 0; e < t->k * group; e++) {
                const uint16_t *left = (const uint16_t *)t->a + ((strip.row + i) * strip.a_row) * group + e;
                const uint16_t *right =
                    b.data() + 1 + ((t->b + e / group) * strip.b_row + j) * group + e % group;
                const double product = (double)tartan_i_f32_of_bf16(*left) * tartan_i_f32_of_bf16(*right);
                *sum += product, *size += std::fabs(product), ++*count;
            }
    }
    void check(const std::vector<float> &got, bool integers) const {
        for (size_t at = 0; at < got.size(); at++) {
            const int64_t place = (int64_t)at - 16, i = place / strip.sums_row, j = place % strip.sums_row;
            if (place < 0 || i >= strip.rows || j >= strip.width) {
                ASSERT_EQ(start[at], got[at]) << "written beside the sums";
                continue;
            }
            double sum, size;
            int64_t count;
            exact(i, j, &sum, &size, &count);
            if (integers)
                ASSERT_EQ(sum, got[at]) << i << ", " << j;
            else
                ASSERT_LE(std::fabs(got[at] - sum), (8 + 2 * std::sqrt((double)count)) *
                                                        (double)std::numeric_limits<float>::epsilon() * size)
                    << i << ", " << j;
        }
    }
};

TEST_P(Products, StripsAreWithinTheBoundAndWriteNothingElse) {
    for (uint64_t seed = 0; seed < tartan_test::rounds(1000u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const bool integers = seed % 3 == 0; // their sums are exact
        Strip s(k.product, seed, integers);
        const std::vector<float> whole = s.run(k.product, s.nterms);
        s.check(whole, integers);
        if (k.product.most_tile_rows > 0) {
            EXPECT_EQ((int)s.nterms, s.calls);
        }
        // A list cut in two gives the same bits.
        const std::vector<float> parts = s.run(k.product, s.nterms / 2);
        EXPECT_EQ(0, std::memcmp(whole.data(), parts.data(), whole.size() * sizeof(float)));
        if (HasFailure()) return;
    }
}

TEST_P(Products, LinesBecomePairs) {
    std::mt19937_64 random(5);
    for (size_t n = 0; n < 140; n++) {
        std::vector<uint16_t> even(n + 1), odd(n + 1), out(2 * n + 66, 0x1234);
        for (auto *v : {&even, &odd})
            for (auto &x : *v) x = (uint16_t)random();
        k.product.pair((int64_t)n, even.data() + 1, odd.data() + 1, out.data() + 33);
        for (size_t i = 0; i < out.size(); i++) {
            const size_t at = i - 33;
            const uint16_t want = i < 33 || at >= 2 * n ? 0x1234 : (at % 2 ? odd : even)[1 + at / 2];
            ASSERT_EQ(want, out[i]) << n << " at " << i;
        }
    }
}

// One product in the middle of zeros: NaN and infinity arrive, numbers below the normal ones may count as zeros.
TEST_P(Products, SpecialNumbers) {
    const float inf = INFINITY, tiny = 0x1p-130f, least = 0x1p-126f;
    const struct {
        float a, b, want, or_else;
    } cases[] = {{inf, 2, inf, inf},
                 {-inf, 2, -inf, -inf},
                 {inf, 0, NAN, NAN},
                 {NAN, 1, NAN, NAN},
                 {NAN, 0, NAN, NAN},
                 {0x1p127f, 4, inf, inf},
                 {tiny, 1, tiny, 0},
                 {tiny, 0x1p100f, 0x1p-30f, 0},
                 {least, 0.5f, 0x1p-127f, 0},
                 {least, 1, least, least},
                 {-0.f, 1, 0, 0}};
    for (const auto &c : cases) {
        Strip s(k.product, 1, true);
        s.strip.first = true;
        std::fill(s.a.begin(), s.a.end(), 0), std::fill(s.b.begin(), s.b.end(), 0);
        s.terms.assign(4, {s.a.data() + 1, 0, s.depth}), s.nterms = 1;
        const int64_t at = s.depth * s.group - 1; // the last of its row
        s.a[(size_t)(1 + s.strip.row * s.strip.a_row * s.group + at)] = tartan_i_bf16_of_f32(c.a);
        s.b[(size_t)(1 + (s.depth - 1) * s.strip.b_row * s.group + s.group - 1)] = tartan_i_bf16_of_f32(c.b);
        const float got = s.run(k.product, 1)[16];
        SCOPED_TRACE(::testing::Message() << c.a << " * " << c.b << " = " << got);
        if (std::isnan(c.want)) {
            EXPECT_TRUE(std::isnan(got));
        } else {
            EXPECT_TRUE(got == c.want || got == c.or_else);
        }
    }
}

// A matrix of scores with gaps behind its rows, and masks, for softmax along columns.
struct Columns {
    int64_t rows, cols, x_row, mask_row;
    std::vector<float> x, shift, total, most;
    std::vector<uint32_t> mask;
    bool masked;
    Columns(const tartan_i_product &p, uint64_t seed) {
        std::mt19937_64 random(seed);
        std::uniform_real_distribution<float> uniform(-6, 6);
        rows = 2 * (int64_t)below(random, 20), cols = p.lanes * (1 + (int64_t)below(random, 5));
        x_row = cols + (int64_t)below(random, 3), mask_row = (cols + 31) / 32 + (int64_t)below(random, 2);
        x.resize((size_t)(rows * x_row + 1));
        for (float &v : x) v = uniform(random);
        for (auto *line : {&shift, &total, &most}) {
            line->resize((size_t)cols);
            for (float &v : *line) v = uniform(random);
        }
        mask.resize((size_t)(rows * mask_row + 1));
        for (uint32_t &word : mask) word = (uint32_t)random();
        masked = random() % 2;
        if (seed % 3 != 0 || rows == 0) return;
        const float specials[] = {NAN, INFINITY, -INFINITY, 1e4f};
        for (int n = 0; n < 8; n++) x[below(random, x.size())] = specials[below(random, 4)];
    }
    const uint32_t *bits() const { return masked ? mask.data() : nullptr; }
    bool counts(int64_t i, int64_t j) const {
        return !masked || (mask[(size_t)(i * mask_row + j / 32)] >> (j % 32) & 1);
    }
};

TEST_P(Products, LargestOfColumns) {
    for (uint64_t seed = 0; seed < tartan_test::rounds(1000u); seed++) {
        const Columns c(k.product, seed);
        std::vector<float> got = c.most;
        k.product.columns_max(c.rows, c.cols, c.x.data(), c.x_row, c.bits(), c.mask_row, got.data());
        for (int64_t j = 0; j < c.cols; j++) {
            float want = c.most[(size_t)j];
            for (int64_t i = 0; i < c.rows; i++)
                if (c.counts(i, j) && c.x[(size_t)(i * c.x_row + j)] > want)
                    want = c.x[(size_t)(i * c.x_row + j)];
            ASSERT_EQ(want, got[(size_t)j]) << "seed " << seed << " column " << j;
        }
    }
}

TEST_P(Products, WeightsOfColumns) {
    for (uint64_t seed = 0; seed < tartan_test::rounds(1000u); seed++) {
        const Columns c(k.product, seed);
        std::vector<float> total = c.total;
        std::vector<uint32_t> got((size_t)(c.rows / 2 * c.cols + 1), 77);
        k.product.columns_weigh(c.rows, c.cols, 0.7, c.x.data(), c.x_row, c.bits(), c.mask_row,
                                c.shift.data(), total.data(), got.data());
        ASSERT_EQ(77u, got.back());
        for (int64_t j = 0; j < c.cols; j++) {
            double sum = c.total[(size_t)j], size = std::fabs(sum);
            for (int64_t i = 0; i < c.rows; i++) {
                const double x = c.x[(size_t)(i * c.x_row + j)],
                             want = c.counts(i, j) ? std::exp((double)0.7f * x - c.shift[(size_t)j]) : 0;
                const uint32_t pair = got[(size_t)(i / 2 * c.cols + j)];
                const double weight = tartan_i_f32_of_bf16((uint16_t)(i % 2 ? pair >> 16 : pair));
                sum += want, size += want;
                if (std::isnan(want)) {
                    ASSERT_TRUE(std::isnan(weight)) << "seed " << seed;
                } else if (want > 3e38) {
                    ASSERT_TRUE(std::isinf(weight)) << "seed " << seed;
                } else {
                    ASSERT_NEAR(want, weight, want * (0x1p-8 + 1e-5) + 1e-38) << "seed " << seed;
                }
            }
            const float end = total[(size_t)j];
            if (std::isnan(sum)) {
                ASSERT_TRUE(std::isnan(end));
            } else if (sum < 3e38) {
                ASSERT_NEAR(sum, end, 4e-6 * size) << "seed " << seed;
            }
        }
    }
}

TEST_P(Products, GradientsOfColumns) {
    for (uint64_t seed = 0; seed < tartan_test::rounds(1000u); seed++) {
        const Columns c(k.product, seed), other(k.product, 3 * seed + 1); // of the latter, numbers alone
        const int64_t half_row = c.cols + (int64_t)(seed % 3) * 2;
        std::vector<float> dp(c.x.size());
        for (size_t i = 0; i < dp.size(); i++) dp[i] = other.shift[i % other.shift.size()];
        std::vector<uint16_t> weights((size_t)(c.rows * half_row + 1), 77), ds = weights;
        std::vector<uint32_t> pairs((size_t)(c.rows / 2 * c.cols + 1), 77);
        const tartan_i_grade grade = {c.rows,         c.cols,    0.7,        c.x.data(),     dp.data(),
                                      c.x_row,        c.bits(),  c.mask_row, c.shift.data(), c.total.data(),
                                      weights.data(), ds.data(), half_row,   pairs.data()};
        k.product.columns_grade(&grade);
        for (int64_t i = 0; i < c.rows; i++)
            for (int64_t j = 0; j < half_row; j++) {
                const size_t at = (size_t)(i * half_row + j);
                if (j >= c.cols) {
                    ASSERT_TRUE(weights[at] == 77 && ds[at] == 77);
                    continue;
                }
                const size_t x = (size_t)(i * c.x_row + j);
                const double w = c.counts(i, j) ? std::exp((double)0.7f * c.x[x] - c.shift[(size_t)j]) : 0,
                             d = c.counts(i, j) ? w * (dp[x] - c.total[(size_t)j]) : 0;
                const uint32_t pair = pairs[(size_t)(i / 2 * c.cols + j)];
                if (std::isnan(w)) {
                    ASSERT_TRUE(std::isnan(tartan_i_f32_of_bf16(weights[at])));
                    ASSERT_TRUE(std::isnan(tartan_i_f32_of_bf16(ds[at])));
                    ASSERT_TRUE(std::isnan(tartan_i_f32_of_bf16((uint16_t)(i % 2 ? pair >> 16 : pair))));
                    continue;
                }
                ASSERT_EQ(ds[at], (uint16_t)(i % 2 ? pair >> 16 : pair)) << "seed " << seed;
                if (w > 3e38) continue; /* infinity */
                ASSERT_NEAR(w, tartan_i_f32_of_bf16(weights[at]), w * (0x1p-8 + 1e-5) + 1e-38);
                ASSERT_NEAR(d, tartan_i_f32_of_bf16(ds[at]), std::fabs(d) * (0x1p-8 + 1e-5) + 1e-38);
            }
    }
}

TEST_P(Products, ColumnsAreScaled) {
    for (uint64_t i = 0; i < tartan_test::rounds(1000u); i++) {
        const uint64_t seed = 3 * i + 1; // these have no NaN
        const Columns c(k.product, seed);
        std::vector<float> got = c.x;
        k.product.columns_scale(c.rows, c.cols, got.data(), c.x_row, c.shift.data());
        for (size_t i = 0; i < got.size(); i++) {
            const int64_t row = (int64_t)i / c.x_row, col = (int64_t)i % c.x_row;
            ASSERT_EQ(row < c.rows && col < c.cols ? c.x[i] * c.shift[(size_t)col] : c.x[i], got[i]);
        }
    }
}

// ---- Stages of attention ----

constexpr int64_t kSpan = TARTAN_I_SPAN;

// A stage with some spans scored, weighed and added, which need not be as many.
struct Stage {
    int64_t d, scored, weighed, added;
    bool first;
    std::vector<uint16_t> queries, keys, values, pairs; // as tiles and rows of pairs
    std::vector<float> scores, weighed_scores, shift, total, sums;
    std::vector<uint32_t> weights;
    static float number(std::mt19937_64 &random) { return (float)((int)below(random, 17) - 8) / 8; }
    explicit Stage(uint64_t seed) {
        std::mt19937_64 random(seed);
        d = kSpan * (1 + (int64_t)below(random, 8));
        scored = (int64_t)below(random, 6), weighed = (int64_t)below(random, 6);
        added = (int64_t)below(random, 6), first = random() % 2;
        const auto fill = [&](std::vector<uint16_t> &v, int64_t n) {
            v.resize((size_t)n);
            for (uint16_t &x : v) x = tartan_i_bf16_of_f32(number(random));
        };
        fill(queries, d * kSpan);
        fill(keys, scored * d * kSpan);
        fill(values, added * d * kSpan);
        fill(pairs, added * kSpan * kSpan);
        scores.assign((size_t)(scored * kSpan * kSpan), NAN);
        weights.assign((size_t)(weighed * kSpan * kSpan / 2 + 1), 77);
        weighed_scores.resize((size_t)(weighed * kSpan * kSpan));
        shift.resize(kSpan), total.resize(kSpan), sums.resize((size_t)(d * kSpan + 1));
        std::uniform_real_distribution<float> uniform(-30, 10);
        for (auto *line : {&weighed_scores, &shift, &total, &sums})
            for (float &x : *line) x = line == &sums ? number(random) : uniform(random);
        if (seed % 3 != 0 || weighed == 0) return;
        const float specials[] = {NAN, INFINITY, -INFINITY, 1e30f, -1e30f, 300};
        for (float x : specials) weighed_scores[below(random, weighed_scores.size())] = x;
    }
    void run(const tartan_i_product &p) {
        std::vector<const char *> k, v;
        std::vector<float *> s;
        std::vector<const float *> w;
        for (int64_t i = 0; i < scored; i++) k.push_back((const char *)&keys[(size_t)(i * d * kSpan)]);
        for (int64_t i = 0; i < added; i++) v.push_back((const char *)&values[(size_t)(i * d * kSpan)]);
        for (int64_t i = 0; i < scored; i++) s.push_back(&scores[(size_t)(i * kSpan * kSpan)]);
        for (int64_t i = 0; i < weighed; i++) w.push_back(&weighed_scores[(size_t)(i * kSpan * kSpan)]);
        tartan_i_stage stage = {};
        stage.d = d;
        stage.queries = (const uint32_t *)(const void *)queries.data();
        stage.spans_scored = scored, stage.keys = k.data(), stage.scores = s.data();
        stage.spans_weighed = weighed, stage.weighed = w.data(), stage.scale = 0.7;
        stage.shift = shift.data(), stage.total = total.data(), stage.weights = weights.data();
        stage.spans_added = added, stage.values = v.data(), stage.first = first;
        stage.pairs = (const uint32_t *)(const void *)pairs.data(), stage.sums = sums.data();
        p.begin(p.most_tile_rows, p.most_tile_units);
        p.stage(&stage);
        p.end();
    }
    // Elements of the operands.
    float query(int64_t t, int64_t q) const { return of(queries, (t / 2 * kSpan + q) * 2 + t % 2); }
    float key(int64_t span, int64_t i, int64_t t) const {
        return of(keys, span * d * kSpan + t / 32 * 1024 + i / 16 * 512 + i % 16 * 32 + t % 32);
    }
    float value(int64_t span, int64_t i, int64_t t) const { return of(values, (span * d + t) * kSpan + i); }
    float pair(int64_t i, int64_t q) const { return of(pairs, (i / 2 * kSpan + q) * 2 + i % 2); }
    static float of(const std::vector<uint16_t> &v, int64_t at) {
        return tartan_i_f32_of_bf16(v[(size_t)at]);
    }
};

TEST_P(Products, StagesOfAttention) {
    for (uint64_t seed = 0; k.product.stage != nullptr && seed < tartan_test::rounds(1000u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Stage before(seed);
        Stage s = before;
        s.run(k.product);
        for (int64_t i = 0; i < s.scored * kSpan; i++) // sums of few eighths are exact
            for (int64_t q = 0; q < kSpan; q++) {
                float want = 0;
                for (int64_t t = 0; t < s.d; t++) want += s.key(i / kSpan, i % kSpan, t) * s.query(t, q);
                ASSERT_EQ(want, s.scores[(size_t)(i * kSpan + q)]);
            }
        for (int64_t t = 0; t < s.d; t++)
            for (int64_t q = 0; q < kSpan; q++) {
                const float start = before.sums[(size_t)(t * kSpan + q)];
                float want = s.added == 0 || !s.first ? start : 0;
                for (int64_t i = 0; i < s.added * kSpan; i++)
                    want += s.value(i / kSpan, i % kSpan, t) * s.pair(i, q);
                ASSERT_EQ(want, s.sums[(size_t)(t * kSpan + q)]);
            }
        ASSERT_EQ(before.sums.back(), s.sums.back());
        ASSERT_EQ(77u, s.weights.back());
        for (int64_t q = 0; q < kSpan; q++) {
            double sum = before.total[(size_t)q], size = std::fabs(sum);
            for (int64_t i = 0; i < s.weighed * kSpan; i++) {
                const double x = s.weighed_scores[(size_t)(i * kSpan + q)];
                const double want = std::exp((double)0.7f * x - s.shift[(size_t)q]);
                const uint32_t both = s.weights[(size_t)(i / 2 * kSpan + q)];
                const double weight = tartan_i_f32_of_bf16((uint16_t)(i % 2 ? both >> 16 : both));
                sum += want, size += want;
                if (std::isnan(want)) {
                    ASSERT_TRUE(std::isnan(weight));
                } else if (want > 3e38) {
                    ASSERT_TRUE(std::isinf(weight));
                } else {
                    ASSERT_NEAR(want, weight, want * (0x1p-8 + 1e-5) + 1e-38);
                }
            }
            if (std::isnan(sum)) {
                ASSERT_TRUE(std::isnan(s.total[(size_t)q]));
            } else if (sum < 3e38) {
                ASSERT_NEAR(sum, s.total[(size_t)q], 4e-6 * size);
            }
        }
    }
}

TEST_P(Products, PeakIsARateAboveZero) {
    const double rate = tartan_i_product_peak(&k.product);
    EXPECT_GT(rate, 1);
    EXPECT_LT(rate, 100000);
}

} // namespace
