// SPDX-License-Identifier: Apache-2.0
// Element-wise functions on every backend: each row of points.def against its own expressions in f64, for arrays of any strides and
// dtypes, repeated operands and sums of gradients.
#include "called.h"

extern "C" {
#include "backend/schema.h"
}

#include <cmath>
#include <set>

namespace {

using namespace tartan_test;

// The words of points.def on numbers of the test.
[[maybe_unused]] double larger(double a, double b) {
    return a > b ? a : b;
}
[[maybe_unused]] double smaller(double a, double b) {
    return a < b ? a : b;
}
#define NUM(x)                  (x)
#define EXP(x)                  std::exp(x)
#define EXPM1(x)                std::expm1(x)
#define LOG(x)                  std::log(x)
#define SQRT(x)                 std::sqrt(x)
#define TANH(x)                 std::tanh(x)
#define ERF(x)                  std::erf(x)
#define FMA(a, b, c)            std::fma(a, b, c)
#define MAX(a, b)               larger(a, b)
#define MIN(a, b)               smaller(a, b)
#define GREATER(a, b)           ((a) > (b))
#define SELECT(condition, a, b) ((condition) ? (a) : (b))
#define EQUAL(a, b)             ((b) != (b) ? (b) : (a))
#define SIGMOID(x)              (1 / (1 + std::exp(-(x))))
#define KEEP_NAN(x, value)      (std::isnan(x) ? (x) : (value))
#define NORMAL(x)               (0.5 * std::erfc(-(x)*0.70710678118654752440))

struct Row1 {
    std::string name;
    double (*value)(double x, double p, double q, double r, double s);
    double (*gradient)(double x, double y, double g, double p, double q, double r, double s);
    std::string expression; // of the gradient
};
#define POINT1(name, help, value, gradient) POINT1_WITH(name, (), help, value, gradient)
#define POINT1_WITH(name, parameters, help, value, gradient)                                                 \
    {#name,                                                                                                  \
     [](double x, double p, double q, double r, double s) -> double {                                        \
         (void)p, (void)q, (void)r, (void)s;                                                                 \
         return value;                                                                                       \
     },                                                                                                      \
     [](double x, double y, double g, double p, double q, double r, double s) -> double {                    \
         (void)x, (void)y, (void)p, (void)q, (void)r, (void)s;                                               \
         return gradient;                                                                                    \
     },                                                                                                      \
     #gradient},
#define POINT2(...)
const Row1 kRows1[] = {
#include "kernels/points.def"
};
#undef POINT1
#undef POINT1_WITH
#undef POINT2

struct Row2 {
    std::string name;
    double (*value)(double a, double b);
    double (*gradient[2])(double a, double b, double y, double g);
    std::string expressions; // of the gradients
};
#define POINT1(...)
#define POINT1_WITH(...)
#define POINT2(name, help, value, of_a, of_b)                                                                \
    {#name,                                                                                                  \
     [](double a, double b) -> double { return value; },                                                     \
     {[](double a, double b, double y, double g) -> double {                                                 \
          (void)a, (void)b, (void)y;                                                                         \
          return of_a;                                                                                       \
      },                                                                                                     \
      [](double a, double b, double y, double g) -> double {                                                 \
          (void)a, (void)b, (void)y;                                                                         \
          return of_b;                                                                                       \
      }},                                                                                                    \
     #of_a " " #of_b},
const Row2 kRows2[] = {
#include "kernels/points.def"
};
#undef POINT1
#undef POINT1_WITH
#undef POINT2

const std::set<std::string> kSlopesCross0 = {"swiglu", "geglu", "add_silu", "add_gelu"};

// Whether an expression has an identifier of one letter.
bool mentions(const std::string &expression, char name) {
    const auto part = [&](size_t i) {
        return i < expression.size() && (std::isalnum((unsigned char)expression[i]) || expression[i] == '_');
    };
    for (size_t i = 0; i < expression.size(); i++)
        if (expression[i] == name && !part(i + 1) && (i == 0 || !part(i - 1))) return true;
    return false;
}

// Arguments are of size 1, so steps in the sum type have errors of a few units, and functions of a few more.
void expect_near(double want, double got, int32_t dtype, int32_t sums, double scale,
                 const std::string &what) {
    if (std::isnan(want) || std::isinf(want)) {
        ASSERT_TRUE(std::isnan(want) ? std::isnan(got) : want == got)
            << what << ": " << got << ", not " << want;
        return;
    }
    const double allowed = epsilon(dtype) * std::fabs(want) + 24 * epsilon(sums) * (std::fabs(want) + scale) +
                           (dtype == TARTAN_F16 ? 0x1p-24 : 0);
    ASSERT_LE(std::fabs(want - got), allowed) << what << ": " << got << ", not " << want;
}

// Element i of a result in an operand that is repeated.
int64_t met_by(const Dense &whole, const Dense &part, int64_t i) {
    int64_t at = 0, step = 1;
    for (int32_t d = whole.array.ndim - 1; d >= 0; i /= whole.array.shape[d], d--) {
        const int32_t own = d - (whole.array.ndim - part.array.ndim);
        if (own < 0) continue;
        if (part.array.shape[own] != 1) at += i % whole.array.shape[d] * step;
        step *= part.array.shape[own];
    }
    return at;
}

// Lines of these sizes are moved in units, with a rest and without.
std::vector<int64_t> some_shape(std::mt19937_64 &random) {
    if (random() % 6 == 0) return {pick<int64_t>(random, {1, 1000, 1003, 4096, 10007})};
    return any_shape(random, 0);
}

class BackendPoints : public OnBackend {
  protected:
    Operand operand(int32_t dtype, const std::vector<int64_t> &shape, std::mt19937_64 &random, bool written,
                    double low = -2, double high = 2) {
        const Style style = random() % 2 ? kRows : (Style)below(random, written ? kRepeated : kStyles);
        Dense d(dtype, shape, style);
        d.fill(random, low, high);
        return {context.get(), d};
    }
    // Numbers for the parameters of a row, and the text of options that gives them.
    static std::string parameters_of(const std::string &name, double p[TARTAN_I_POINT_PARAMETERS]) {
        std::string text;
        for (int32_t i = 0; i < tartan_i_schema_count; i++) {
            const tartan_i_schema &schema = tartan_i_schemas[i];
            for (int32_t k = 0; schema.name == name && k < schema.noptions; k++) {
                const tartan_i_option_rule &rule = schema.options[k];
                p[k] = rule.kind == TARTAN_I_OPTION_FLAG ? 1 : rule.low < 0 ? -0.75 : 0.75;
                text += std::string(rule.name) + "=" +
                        (rule.kind == TARTAN_I_OPTION_FLAG ? "1" : std::to_string(p[k])) + " ";
            }
        }
        return text;
    }
};

TEST_P(BackendPoints, RowsOfOneArrayGiveTheirExpressions) {
    std::mt19937_64 random(1);
    for (const Row1 &row : kRows1)
        for (int round = 0; round < rounds(24); round++) {
            SCOPED_TRACE(row.name + " " + std::to_string(round));
            const int32_t dtype = kDtypes[round % 4], sums = tartan_i_sum_dtype(dtype);
            const bool positive = row.name == "sqrt" || row.name == "log" || row.name == "reciprocal";
            const std::vector<int64_t> shape = some_shape(random);
            double p[TARTAN_I_POINT_PARAMETERS] = {};
            const std::string options = parameters_of(row.name, p);
            Operand x = operand(dtype, shape, random, false, positive ? 0.01 : -2, 2),
                    y = operand(random() % 2 ? dtype : sums, shape, random, true);
            const bool in_place =
                random() % 4 == 0 && tartan_i_array_check("", "", &x.dense.array, true) == TARTAN_OK;
            const Dense in = x.dense;
            RUN_OR_NEXT(
                call(context.get(), row.name, {x.array(), in_place ? x.array() : y.array()}, options));
            const Dense got = (in_place ? x : y).got();
            for (int64_t i = 0; i < in.elements(); i++)
                expect_near(row.value(in.get(i), p[0], p[1], p[2], p[3]), got.get(i), got.array.dtype, sums,
                            1, "value " + std::to_string(i));
            EXPECT_TRUE(marks_intact(got));
            if (HasFailure()) return;

            // The gradient takes what its expression mentions, in the order x, y.
            Operand g = operand(like_dtype(dtype, random), shape, random, false), again = {context.get(), in},
                    x_grad = operand(like_dtype(dtype, random), shape, random, true);
            Dense values(sums, shape);
            for (int64_t i = 0; i < in.elements(); i++)
                values.set(i, row.value(in.get(i), p[0], p[1], p[2], p[3]));
            Operand value = {context.get(), values};
            std::vector<void *> arguments;
            if (mentions(row.expression, 'x')) arguments.push_back(again.array());
            if (mentions(row.expression, 'y')) arguments.push_back(value.array());
            arguments.push_back(g.array());
            arguments.push_back(x_grad.array());
            RUN_OR_NEXT(call(context.get(), row.name + "_gradient", arguments, options));
            const Dense gradient = x_grad.got();
            for (int64_t i = 0; i < in.elements(); i++) {
                const double of =
                    row.gradient(in.get(i), values.get(i), g.dense.get(i), p[0], p[1], p[2], p[3]);
                expect_near(of, gradient.get(i), gradient.array.dtype, sums, 4,
                            "gradient " + std::to_string(i));
            }
            EXPECT_TRUE(marks_intact(gradient));
            if (HasFailure()) return;
        }
}

TEST_P(BackendPoints, RowsOfTwoArraysGiveTheirExpressions) {
    std::mt19937_64 random(2);
    for (const Row2 &row : kRows2)
        for (int round = 0; round < rounds(40); round++) {
            SCOPED_TRACE(row.name + " " + std::to_string(round));
            const int32_t dtype = kDtypes[round % 4], sums = tartan_i_sum_dtype(dtype);
            const std::vector<int64_t> shape = some_shape(random);
            std::vector<int64_t> shapes[2] = {shape, shape};
            for (auto &one : shapes) {
                if (random() % 2) continue;
                for (int64_t &length : one)
                    if (random() % 2) length = 1;
                if (&one == &shapes[1])
                    one.erase(one.begin(), one.begin() + (std::ptrdiff_t)below(random, one.size() + 1));
            }
            const std::vector<int64_t> first = shapes[0];
            std::vector<int64_t> result = first; // what they broadcast to
            for (size_t d = 1; d <= shapes[1].size(); d++) {
                int64_t &length = result[result.size() - d];
                if (length == 1) length = shapes[1][shapes[1].size() - d];
            }
            const auto away = [&](Operand &o) { // from 0, for quotients, and often equal
                for (int64_t i = 0; i < o.dense.elements(); i++) {
                    const double v = o.dense.get(i);
                    o.dense.set(i, random() % 4 == 0 ? 1.5 : v < 0 ? v - 0.5 : v + 0.5);
                }
                o = {context.get(), o.dense};
            };
            Operand a = operand(dtype, first, random, false),
                    b = operand(like_dtype(dtype, random), shapes[1], random, false),
                    y = operand(random() % 2 ? dtype : sums, result, random, true);
            away(a), away(b);
            RUN_OR_NEXT(call(context.get(), row.name, {a.array(), b.array(), y.array()}));
            const Dense got = y.got();
            for (int64_t i = 0; i < got.elements(); i++)
                expect_near(
                    row.value(a.dense.get(met_by(got, a.dense, i)), b.dense.get(met_by(got, b.dense, i))),
                    got.get(i), got.array.dtype, sums, 2, "value " + std::to_string(i));
            EXPECT_TRUE(marks_intact(got));
            if (HasFailure()) return;

            Operand g = operand(like_dtype(dtype, random), result, random, false),
                    to_a = operand(like_dtype(dtype, random), first, random, true),
                    to_b = operand(like_dtype(dtype, random), shapes[1], random, true);
            const bool wants[2] = {random() % 4 != 0, random() % 4 != 0};
            std::vector<void *> arguments = {a.array(), b.array()};
            if (mentions(row.expressions, 'y')) arguments.push_back(y.array());
            arguments.push_back(g.array());
            arguments.push_back(wants[0] ? to_a.array() : nullptr);
            arguments.push_back(wants[1] ? to_b.array() : nullptr);
            RUN_OR_NEXT(call(context.get(), row.name + "_gradient", arguments));
            const Dense once[2] = {to_a.got(), to_b.got()};
            RUN_OR_NEXT(call(context.get(), row.name + "_gradient", arguments));
            const Dense twice[2] = {to_a.got(), to_b.got()};
            for (int k = 0; k < 2; k++) {
                EXPECT_EQ(once[k].memory(), twice[k].memory()) << "a second run has other bits";
                EXPECT_TRUE(marks_intact(once[k]));
                std::vector<double> sum((size_t)once[k].elements()), size(sum.size());
                for (int64_t i = 0; i < got.elements(); i++) {
                    const double term =
                        row.gradient[k](a.dense.get(met_by(got, a.dense, i)),
                                        b.dense.get(met_by(got, b.dense, i)), got.get(i), g.dense.get(i));
                    const size_t to = (size_t)met_by(got, once[k], i);
                    sum[to] += term, size[to] += std::fabs(term);
                    // What terms are made of cancels where a slope is 0.
                    if (kSlopesCross0.count(row.name) > 0) size[to] += std::fabs(g.dense.get(i));
                }
                for (int64_t i = 0; i < once[k].elements() && wants[k]; i++)
                    expect_near(sum[(size_t)i], once[k].get(i), once[k].array.dtype, sums, size[(size_t)i],
                                (k == 0 ? "a_grad " : "b_grad ") + std::to_string(i));
            }
            if (HasFailure()) return;
        }
}

// Sums that several CTAs, or threads, share: over rows, columns and all.
TEST_P(BackendPoints, SumsOfManyTerms) {
    std::mt19937_64 random(3);
    const std::vector<int64_t> wholes[] = {{3000, 96}, {7, 20011}, {40, 50, 33},
                                           {65000, 2}, {90001, 7}, {300, 9, 31}};
    for (const std::vector<int64_t> &whole : wholes)
        for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16})
            for (size_t kept = 0; kept <= whole.size();
                 kept++) { // only dimension `kept` of b is not repeated
                std::vector<int64_t> part(whole.size(), 1);
                if (kept < whole.size()) part[kept] = whole[kept];
                SCOPED_TRACE(::testing::Message() << whole[0] << " " << dtype << " " << kept);
                const int32_t sums = tartan_i_sum_dtype(dtype);
                Operand a = operand(dtype, whole, random, false, 0, 1),
                        b = operand(dtype, part, random, false), g = operand(dtype, whole, random, false),
                        to = operand(sums, part, random, true);
                RUN_OR_NEXT(call(context.get(), "multiply_gradient",
                                 {a.array(), b.array(), g.array(), nullptr, to.array()}));
                const Dense got = to.got();
                std::vector<double> sum((size_t)got.elements()), size(sum.size());
                for (int64_t i = 0; i < a.dense.elements(); i++) {
                    const double term = a.dense.get(i) * g.dense.get(i);
                    const size_t at = (size_t)met_by(a.dense, got, i);
                    sum[at] += term, size[at] += std::fabs(term);
                }
                for (int64_t i = 0; i < got.elements(); i++)
                    expect_near(sum[(size_t)i], got.get(i), sums, sums, size[(size_t)i] * 0.1,
                                std::to_string(i));
                if (HasFailure()) return;
            }
}

// What maximum and relu say of NaN, infinity and zeros.
TEST_P(BackendPoints, NumbersThatAreNone) {
    const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.0};
    const int64_t n = (int64_t)(sizeof special / sizeof *special);
    for (int32_t dtype : kDtypes) {
        Dense a(dtype, {n, n}), b(dtype, {n, n});
        for (int64_t i = 0; i < n * n; i++) a.set(i, special[i / n]), b.set(i, special[i % n]);
        Operand on_a = {context.get(), a}, on_b = {context.get(), b}, y = {context.get(), a};
        for (const char *name : {"maximum", "minimum", "add", "multiply"}) {
            RUN_OR_NEXT(call(context.get(), name, {on_a.array(), on_b.array(), y.array()}));
            const Row2 *row = kRows2;
            while (row->name != name) row++;
            const Dense got = y.got();
            for (int64_t i = 0; i < n * n; i++) {
                const double want = row->value(a.get(i), b.get(i));
                ASSERT_TRUE(std::isnan(want) ? std::isnan(got.get(i)) : want == got.get(i))
                    << name << " of " << a.get(i) << ", " << b.get(i) << ": " << got.get(i);
            }
        }
    }
}

// On the CPU, sums of few and many terms over first, last and middle dimensions are within a rounding of the exact ones, and have the
// same bits with any threads and instruction set.
TEST(CpuPoints, SumsHaveOneOrder) {
    const struct {
        std::vector<int64_t> whole, part;
    } cases[] = {{{500, 130}, {130}},   {{500, 130}, {500, 1}},      {{65000}, {1}},
                 {{3, 20000}, {20000}}, {{4, 18000, 2}, {18000, 1}}, {{20, 40, 30}, {40, 1}},
                 {{300, 70}, {}},       {{2, 3, 17000}, {3, 17000}}};
    for (const auto &c : cases)
        for (const int32_t dtype : {TARTAN_F64, TARTAN_F32}) {
            std::mt19937_64 random(36);
            Dense a(dtype, c.whole), b(dtype, c.part), g(dtype, c.whole), to(dtype, c.part);
            for (Dense *one : {&a, &b, &g}) one->fill(random, -2, 2);
            std::vector<char> first;
            for (const tartan_i_cpu_features set : feature_sets())
                for (const int32_t threads : {1, 2, 3, 7}) {
                    const WithFeatures with(set);
                    ASSERT_OK(call(open_context(threads).get(), "multiply_gradient",
                                   {&a.array, &b.array, &g.array, nullptr, &to.array}));
                    if (first.empty()) first = to.memory();
                    ASSERT_EQ(first, to.memory()) << threads << " threads, " << features_name(set);
                }
            std::vector<long double> sum((size_t)to.elements()), size(sum.size());
            for (int64_t i = 0; i < a.elements(); i++) {
                const double term = rounded(dtype, a.get(i) * g.get(i));
                const size_t at = (size_t)met_by(a, to, i);
                sum[at] += term, size[at] += std::fabs(term);
            }
            for (size_t i = 0; i < sum.size(); i++)
                ASSERT_LE(std::fabs(sum[i] - to.get((int64_t)i)),
                          std::fabs(sum[i]) * epsilon(dtype) / 1.99L +
                              size[i] * 0x1p-52L * (40 + (long double)a.elements() / 64))
                    << i;
        }
}

INSTANTIATE_TEST_SUITE_P(Each, BackendPoints, ::testing::ValuesIn(backends()),
                         [](const auto &all) { return all.param; });

} // namespace
