// SPDX-License-Identifier: Apache-2.0
// Every word of the vector vocabulary of every instruction set does what simd/simd.h says.
#include "exp_error.h"
#include "points_bound.h"

extern "C" {
#include "words.h"

#define DECLARE(isa, feature) extern const words tartan_i_words_##isa##_32, tartan_i_words_##isa##_64;
TARTAN_TEST_VOCABULARIES(DECLARE)
}

namespace {

using namespace tartan_test;

template <typename T> const words *table(const words &narrow, const words &wide) {
    return sizeof(T) == 4 ? &narrow : &wide;
}

// The vocabularies that this CPU can run.
template <typename T> std::vector<const words *> vocabularies() {
    std::vector<const words *> all;
    char names[64];
    tartan_i_cpu_list(tartan_i_cpu_detect(), names, sizeof names);
    const std::string has = std::string(",c,") + names + ",";
#define ADD(isa, name)                                                                                       \
    if (has.find("," name ",") != std::string::npos)                                                         \
        all.push_back(table<T>(tartan_i_words_##isa##_32, tartan_i_words_##isa##_64));
    TARTAN_TEST_VOCABULARIES(ADD)
    return all;
}

// Numbers of all kinds, often equal to each other.
template <typename T> T any_number(std::mt19937_64 &random) {
    using Limits = std::numeric_limits<T>;
    const T special[] = {0,
                         -(T)0,
                         1,
                         -1,
                         (T)INFINITY,
                         -(T)INFINITY,
                         (T)NAN,
                         Limits::max(),
                         Limits::min(),
                         Limits::denorm_min()};
    if (random() % 3 == 0) return special[random() % 10];
    const int exponent = random() % 4 == 0
                             ? (int)below(random, 2 * Limits::max_exponent) - Limits::max_exponent
                             : (int)below(random, 8);
    return (T)std::ldexp(std::uniform_real_distribution<double>(-1, 1)(random), exponent);
}

template <typename T, typename Fold> T by_halves(const T *p, int lanes, Fold fold) {
    std::vector<T> x(p, p + lanes);
    for (int half = lanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) x[(size_t)i] = fold(x[(size_t)i], x[(size_t)(i + half)]);
    return x[0];
}

template <typename T> T meaning(int word, int lanes, size_t i, const T *a, const T *b, const T *c) {
    const T x = a[i], y = b[i], z = c[i];
    const T *vector = a + i / (size_t)lanes * (size_t)lanes;
    switch (word) {
    case WORD_ADD:
        return x + y;
    case WORD_SUB:
        return x - y;
    case WORD_MUL:
        return x * y;
    case WORD_DIV:
        return x / y;
    case WORD_SQRT:
        return std::sqrt(x);
    case WORD_FMA:
        return std::fma(x, y, z);
    case WORD_MAX:
        return x > y ? x : y;
    case WORD_MIN:
        return x < y ? x : y;
    case WORD_SELECT:
        return x > y ? z : x;
    case WORD_IS_NAN:
        return std::isnan(x) ? y : z;
    case WORD_MASK:
        return 0x5a5a5a5au >> (i / (size_t)lanes % 16) >> (i % (size_t)lanes) & 1 ? x : y;
    case WORD_SUM:
        return by_halves(vector, lanes, [](T p, T q) { return p + q; });
    case WORD_LARGEST:
        return by_halves(vector, lanes, [](T p, T q) { return p > q ? p : q; });
    }
    return 0;
}

template <typename T> void check_words() {
    std::mt19937_64 random(5);
    const size_t n = 4096;
    std::vector<T> a(n), b(n), c(n), got(n);
    for (size_t i = 0; i < n; i++)
        a[i] = any_number<T>(random), b[i] = any_number<T>(random), c[i] = any_number<T>(random);
    for (const words *v : vocabularies<T>()) {
        for (int word = 0; word < WORD_EXP; word++) {
            v->run(word, (int64_t)n, a.data(), b.data(), c.data(), got.data());
            for (size_t i = 0; i < n; i++) {
                const T want = meaning(word, v->lanes, i, a.data(), b.data(), c.data());
                const bool equal =
                    std::memcmp(&want, &got[i], sizeof want) == 0 || (std::isnan(want) && std::isnan(got[i]));
                ASSERT_TRUE(equal) << "word " << word << ", " << v->lanes << " lanes, element " << i << ": "
                                   << a[i] << ", " << b[i] << ", " << c[i] << " give " << got[i] << ", not "
                                   << want;
            }
        }
    }
}

TEST(Words, MeanWhatTheHeaderSays) {
    check_words<float>();
    check_words<double>();
}

template <typename T> void check_first() {
    std::mt19937_64 random(6);
    for (const words *v : vocabularies<T>()) {
        for (size_t n = 0; n < (size_t)v->lanes; n++) {
            std::vector<T> in((size_t)v->lanes);
            fill(in.data(), in.size(), random);
            Guarded<T> out((size_t)v->lanes, n);
            v->load_first((int64_t)n, in.data(), out.data());
            for (size_t i = 0; i < in.size(); i++) EXPECT_EQ(i < n ? in[i] : 0, out.data()[i]);
            EXPECT_TRUE(out.intact());
            Guarded<T> first(n, n);
            v->store_first((int64_t)n, in.data(), first.data());
            EXPECT_SAME_BITS(n, in.data(), first.data());
            EXPECT_TRUE(first.intact());
        }
    }
}

TEST(Words, FirstLanesAloneAreTouched) {
    check_first<float>();
    check_first<double>();
}

// ---- Functions ----

struct Function {
    int word;
    const char *name;
    double units; // documented in docs/numerics.md
    double (*wide)(double);
    long double (*wider)(long double);
};
#define WIDE(expression)                                                                                     \
    [](double x) { return (double)(expression); }, [](long double x) { return (long double)(expression); }
const Function kFunctions[] = {
    {WORD_EXP, "exp", 1, WIDE(std::exp(x))},
    {WORD_EXPM1, "expm1", 1.25, WIDE(std::expm1(x))},
    {WORD_LOG, "log", 1, WIDE(std::log(x))},
    {WORD_TANH, "tanh", 1, WIDE(std::tanh(x))},
    {WORD_ERF, "erf", 1.25, WIDE(std::erf(x))},
    {WORD_SIGMOID, "sigmoid", 2.5, WIDE(x > 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)))},
    {WORD_NORMAL, "normal", 5, WIDE(wide_normal(x))},
};

template <typename T> long double exact(const Function &f, T x) {
    return sizeof(T) == 4 ? (long double)f.wide((double)x) : f.wider((long double)x);
}

template <typename T> std::vector<T> by_all(const Function &f, const std::vector<T> &x) {
    const std::vector<const words *> all = vocabularies<T>();
    std::vector<T> want(x.size()), got(x.size());
    all[0]->run(f.word, (int64_t)x.size(), x.data(), x.data(), x.data(), want.data());
    for (const words *v : all) {
        v->run(f.word, (int64_t)x.size(), x.data(), x.data(), x.data(), got.data());
        for (size_t i = 0; i < x.size(); i++)
            if (std::memcmp(&want[i], &got[i], sizeof(T)) != 0 &&
                !(std::isnan(want[i]) && std::isnan(got[i]))) {
                ADD_FAILURE() << f.name << '(' << x[i] << ") is " << got[i] << " and " << want[i];
                return want;
            }
    }
    return want;
}

template <typename T> double worst_of(const Function &f, const std::vector<T> &x) {
    const std::vector<T> got = by_all(f, x);
    double worst = 0;
    for (size_t i = 0; i < x.size(); i++) {
        const long double want = exact(f, x[i]);
        const double found =
            units(std::signbit(got[i]) ? -got[i] : got[i], std::signbit(got[i]) ? -want : want);
        EXPECT_LE(found, f.units) << f.name << '(' << x[i] << ") is " << got[i];
        worst = std::max(worst, found);
    }
    return worst;
}

template <typename T> void check_functions() {
    if (!has_wide<T>()) return;
    for (const Function &f : kFunctions) {
        std::mt19937_64 random(7);
        std::vector<T> x(rounds(1u << 16) / 16 * 16);
        for (T &value : x) value = any_number<T>(random);
        worst_of(f, x);
        double worst = 0;
        for (double size : {0x1p-8, 1.5, 10., 45., 750.}) {
            std::uniform_real_distribution<double> uniform(-size, size);
            for (T &value : x) value = (T)uniform(random);
            worst = std::max(worst, worst_of(f, x));
        }
        testing::Test::RecordProperty(f.name, std::to_string(worst));
    }
}

TEST(Words, FunctionsAreTheSameInAllAndPrecise) {
    check_functions<float>();
    check_functions<double>();
}

// All sizes of f32.
TEST(Words, FunctionsOfALargeSampleOfF32) {
    std::vector<float> x(1 << 15);
    for (const Function &f : kFunctions)
        for (uint64_t bits = 0; bits < uint64_t(1) << 32;) {
            for (float &one : x) one = f32_of_bits((uint32_t)bits), bits += 8191 * (uint64_t)share;
            worst_of(f, x);
        }
}

template <typename T> void check_ends() {
    using Limits = std::numeric_limits<T>;
    const T inf = (T)INFINITY, tiny = Limits::denorm_min();
    struct {
        int function;
        T x, want;
    } const cases[] = {
        {1, inf, inf},     {1, -inf, -1},     {1, -(T)0, -(T)0}, {1, tiny, tiny}, {1, -tiny, -tiny},
        {2, inf, inf},     {2, 0, -inf},      {2, -(T)0, -inf},  {2, 1, 0},       {3, inf, 1},
        {3, -inf, -1},     {3, -(T)0, -(T)0}, {3, -tiny, -tiny}, {4, inf, 1},     {4, -inf, -1},
        {4, -(T)0, -(T)0}, {5, inf, 1},       {5, -inf, 0},      {5, 0, (T)0.5},  {6, inf, 1},
        {6, -inf, 0},      {6, 0, (T)0.5},
    };
    for (const auto &c : cases) {
        const std::vector<T> got = by_all(kFunctions[c.function], std::vector<T>(16, c.x));
        EXPECT_EQ(0, std::memcmp(&c.want, got.data(), sizeof c.want))
            << kFunctions[c.function].name << c.x << got[0];
    }
    for (const Function &f : kFunctions)
        for (T x : {(T)NAN, -(T)NAN}) EXPECT_TRUE(std::isnan(by_all(f, std::vector<T>(16, x))[0])) << f.name;
    for (T x : {-tiny, (T)-1, Limits::lowest(), -inf})
        EXPECT_TRUE(std::isnan(by_all(kFunctions[2], std::vector<T>(16, x))[0])) << x;
}

TEST(Words, FunctionsAtTheEnds) {
    check_ends<float>();
    check_ends<double>();
}

} // namespace
