// SPDX-License-Identifier: Apache-2.0
// Options of the operations of the schema: defaults, ranges, words, and what is refused.
#include "../support/schema_case.h"

namespace {

using namespace tartan_test;

class Options : public ForOperation {
  protected:
    Case c = Case(op, Wish());
    const std::vector<std::string> before = c.memory_of_outputs();

    tartan_status run(const std::string &options) {
        return tartan_op_run(context, c.op, c.given.data(), c.count(), options.c_str());
    }
    void expect_refused(const std::string &options, const std::string &text) {
        EXPECT_EQ(TARTAN_ERR_ARGUMENT, run(options)) << options << ": " << tartan_last_error();
        const std::string said = tartan_last_error();
        EXPECT_EQ(std::string(schema.function) + ": " + text, said) << options;
        EXPECT_TRUE(before == c.memory_of_outputs()) << "a refused call wrote";
        tartan_op_result results[TARTAN_I_MAX_ARGUMENTS];
        int64_t count = 0;
        EXPECT_EQ(TARTAN_ERR_ARGUMENT, tartan_op_infer(c.op, c.given.data(), c.count(), options.c_str(),
                                                       results, c.count(), &count));
        EXPECT_EQ(said, tartan_last_error());
    }
    // Allowed, though the function of the entry may refuse it together with what else is given.
    void expect_in_range(const tartan_i_option_rule &o, const std::string &value) {
        const std::string options = std::string(o.name) + "=" + value;
        Case fresh(op, Wish());
        if (tartan_op_run(context, op, fresh.given.data(), fresh.count(), options.c_str()) == TARTAN_OK)
            return;
        ASSERT_TRUE(schema.check != nullptr || schema.shapes != nullptr) << tartan_last_error();
        ASSERT_EQ(std::string::npos,
                  std::string(tartan_last_error()).find("expected " + std::string(o.name) + " to be"))
            << tartan_last_error();
    }
    void expect_out_of_range(const tartan_i_option_rule &o, const std::string &value) {
        const std::string word = std::string(o.name) + "=" + value;
        expect_refused(word,
                       "options has '" + word.substr(0, 64) + "', expected " + o.name + " to be " + o.range);
    }
    std::string names() const {
        std::string all;
        for (int32_t i = 0; i < schema.noptions; i++)
            all += (i == 0                    ? ""
                    : i + 1 < schema.noptions ? ", "
                                              : " or ") +
                   std::string(schema.options[i].name);
        return all.empty() ? "none" : all;
    }
    static bool is_list(const tartan_i_option_rule &o) {
        return o.kind == TARTAN_I_OPTION_SIZES || o.kind == TARTAN_I_OPTION_WINDOWS;
    }
    static std::string default_of(const tartan_i_option_rule &o) {
        if (o.kind == TARTAN_I_OPTION_WORD) return o.words[(int)o.value];
        if (std::isnan(o.value)) return "1"; // the operands decide
        return Case::in_full(o.value);
    }
    // Values that are allowed; not all are the default.
    static std::vector<std::string> allowed(const tartan_i_option_rule &o) {
        if (o.kind == TARTAN_I_OPTION_FLAG) return {"0", "1"};
        if (o.kind == TARTAN_I_OPTION_WORD) return {o.words, o.words + o.nwords};
        const double low = std::max(o.low, -2.0), high = std::min(o.high, low + 4);
        if (o.kind == TARTAN_I_OPTION_WHOLE)
            return {Case::in_full(std::ceil(low)), Case::in_full(std::floor(high))};
        return {default_of(o), Case::in_full(low + 0.4 * (high - low)), Case::in_full(std::min(o.high, 1e4))};
    }
};
FOR_EACH_OPERATION(Options);

TEST_P(Options, UnknownOrRepeated) {
    expect_refused("nothing=1", "options has 'nothing=1', expected " + names());
    expect_refused("nothing", "options has 'nothing', expected name=value");
    expect_refused(" ,=1", "options has '=1', expected " + names());
    for (int32_t i = 0; i < schema.noptions; i++) {
        const tartan_i_option_rule &o = schema.options[i];
        if (is_list(o)) continue;
        const std::string word = std::string(o.name) + "=" + default_of(o);
        expect_refused(word + "," + word, std::string("options has ") + o.name + " twice, expected it once");
        expect_refused("x" + word, "options has 'x" + word + "', expected " + names());
        const std::string cut = word.substr(1);
        expect_refused(cut, "options has '" + cut + "', expected " + names());
    }
}

TEST_P(Options, OutOfRange) {
    for (int32_t i = 0; i < schema.noptions; i++) {
        const tartan_i_option_rule &o = schema.options[i];
        SCOPED_TRACE(o.name);
        for (const char *none : {"", "a", "1a", "--1", "nan", "inf", "1e999"}) expect_out_of_range(o, none);
        const bool whole = o.kind == TARTAN_I_OPTION_WHOLE;
        if (o.kind == TARTAN_I_OPTION_REAL && std::isinf(o.high)) // numbers are computed in f32
            expect_refused(std::string(o.name) + "=1e300",
                           std::string(o.name) + " is 1e+300, expected a number that is finite in float32");
        if (o.kind == TARTAN_I_OPTION_FLAG)
            expect_out_of_range(o, "2"), expect_out_of_range(o, "-1"), expect_out_of_range(o, "01");
        if (o.kind == TARTAN_I_OPTION_WORD) expect_out_of_range(o, o.words[0] + std::string("x"));
        if (o.kind == TARTAN_I_OPTION_SIZES)
            expect_out_of_range(o, "3x"), expect_out_of_range(o, "1x1x1x1x1x1x1");
        if (whole) expect_out_of_range(o, "0.5"), expect_out_of_range(o, "9223372036854775808");
        if (o.kind != TARTAN_I_OPTION_REAL && !whole) continue;
        for (const bool upper : {false, true}) {
            const double bound = upper ? o.high : o.low;
            if (std::isinf(bound)) continue;
            const double step = upper ? 1 : -1, within = upper ? -1 : 1;
            const double beyond = whole ? bound + step : std::nextafter(bound, step * HUGE_VAL);
            const double inside = whole ? bound + within : std::nextafter(bound, within * HUGE_VAL);
            const bool excluded = upper ? o.below : o.above;
            expect_out_of_range(o, Case::in_full(beyond));
            if (excluded)
                expect_out_of_range(o, Case::in_full(bound));
            else if (!is_count(o) || bound == 1) // the operands are lists of one array
                expect_in_range(o, Case::in_full(bound));
            if (!is_count(o)) expect_in_range(o, Case::in_full(inside));
        }
    }
}

// An option with its default is the same call as one without, in any order and with any separators.
TEST_P(Options, Defaults) {
    for (uint64_t seed = 0; seed < rounds(4u); seed++) {
        Case without(op, random_wish(seed)), with(op, random_wish(seed));
        ASSERT_OK(without.run(context));
        std::string all = " ";
        for (int32_t i = 0; i < schema.noptions; i++)
            if (!is_list(schema.options[i]) && !std::isnan(schema.options[i].value) &&
                !with.has_option(schema.options[i].name))
                all = std::string(schema.options[i].name) + "=" + default_of(schema.options[i]) +
                      (seed % 2 ? " ,\t" : ",") + all;
        with.options = with.beside(all), with.windows.clear(); // which the options have now
        ASSERT_OK(with.run(context)) << all;
        EXPECT_TRUE(without.memory_of_outputs() == with.memory_of_outputs()) << all;
        Case none(op, random_wish(seed));
        const std::string text = none.text();
        ASSERT_OK(tartan_op_run(context, none.op, none.given.data(), none.count(),
                                text.empty() ? nullptr : text.c_str()));
        EXPECT_TRUE(without.memory_of_outputs() == none.memory_of_outputs());
    }
}

// Options that count with other values than the usual ones, with several others, or for another dtype.
struct Counting {
    const char *operation, *option, *one, *other, *others;
    int32_t dtype;
};
const Counting counting[] = {
    {"adam", "stochastic", "0", "1", "rate=0.003 ", TARTAN_BF16},
    {"adam", "seed", "0", "1", "stochastic=1 rate=0.003 ", TARTAN_BF16},
    {"sgd", "stochastic", "0", "1", "rate=0.003 ", TARTAN_BF16},
    {"sgd", "seed", "0", "1", "stochastic=1 rate=0.003 ", TARTAN_BF16},
    {"lion", "stochastic", "0", "1", "rate=0.003 ", TARTAN_BF16},
    {"lion", "seed", "0", "1", "stochastic=1 rate=0.003 ", TARTAN_BF16},
    {"lion", "step", "1", "2", "stochastic=1 rate=0.003 ", TARTAN_BF16},
    {"quantize", "emax", "0", "-2", "", TARTAN_F64},
    {"quantize", "emin", "0", "-3", "", TARTAN_F64},
    {"quantize", "largest", "1", "1.5", "", TARTAN_F64},
    {"quantize", "flush", "0", "1", "emin=2 ", TARTAN_F64},
    {"quantize", "infinite", "0", "1", "largest=0.5 ", TARTAN_F64},
    {"quantize", "seed", "0", "1", "rounding=stochastic fbits=0 ", TARTAN_F64},
    {"quantize", "offset", "0", "1", "rounding=stochastic fbits=0 ", TARTAN_F64},
    {"quantize_gradient", "flush", "0", "1", "gradient_ebits=4 gradient_emin=2 ", TARTAN_F64},
    {"quantize_gradient", "infinite", "0", "1", "gradient_ebits=4 gradient_largest=0.5 ", TARTAN_F64},
    {"quantize_gradient", "seed", "0", "1", "rounding=stochastic gradient_fbits=0 gradient_ebits=4 ",
     TARTAN_F64},
    {"quantize_gradient", "offset", "0", "1", "rounding=stochastic gradient_fbits=0 gradient_ebits=4 ",
     TARTAN_F64},
    {"quantize_gradient", "gradient_emax", "0", "-2", "gradient_ebits=4 ", TARTAN_F64},
    {"quantize_gradient", "gradient_emin", "0", "-3", "gradient_ebits=4 ", TARTAN_F64},
    {"quantize_gradient", "gradient_largest", "1", "1.5", "gradient_ebits=4 ", TARTAN_F64},
    {"quantize_stats", "fbits", "0", "3", "emin=2 ", TARTAN_F64},
    {"quantize_stats", "emax", "7", "-2", "", TARTAN_F64},
    {"quantize_stats", "emin", "4", "-3", "", TARTAN_F64},
    {"quantize_stats", "largest", "0.25", "240", "", TARTAN_F64},
    {"quantize_stats", "flush", "0", "1", "emin=2 ", TARTAN_F64},
};

TEST_P(Options, CountTogether) {
    for (const Counting &one : counting) {
        if (std::string(one.operation) != schema.name) continue;
        bool differs = false;
        for (const uint64_t seed : {1, 2, 3}) {
            std::vector<std::vector<std::string>> results;
            for (const char *value : {one.one, one.other}) {
                Wish wish;
                wish.dtype = one.dtype, wish.seed = seed;
                wish.low = one.dtype == TARTAN_BF16 ? 0.3 : -1.7; // moments are positive
                wish.options = std::string(one.others) + one.option + "=" + value;
                Case run(op, wish);
                ASSERT_OK(run.run(context));
                results.push_back(run.memory_of_outputs());
            }
            differs = differs || results[0] != results[1];
        }
        EXPECT_TRUE(differs) << one.option << " has no effect";
    }
}

// Every other option changes something: alone, or together with another one.
TEST_P(Options, Count) {
    for (int32_t i = 0; i < schema.noptions; i++) {
        const tartan_i_option_rule &o = schema.options[i];
        // Options whose effect cannot show here: the dtype of results, which C has as they are; what lets a GPU choose; what says which
        // operand is given, how many, or whose head a head of the layout is, which other calls show (the last one where a layout has as
        // many heads as there are entries and heads); and what indices count from, since the indices are made to follow it.
        if (is_list(o) || is_count(o) || std::string(o.name) == "deterministic" ||
            std::string(o.name) == "dtype" || std::string(o.name) == "gradient_dtype" ||
            std::string(o.name) == "base" || std::string(o.name) == "by_batch" || c.has_option(o.name))
            continue;
        const bool of_gradient =
            schema.name == std::string("quantize") && std::string(o.name).rfind("gradient_", 0) == 0;
        if (of_gradient || std::any_of(std::begin(counting), std::end(counting), [&](const Counting &one) {
                return std::string(one.operation) == schema.name && std::string(one.option) == o.name;
            }))
            continue;
        bool differs = false;
        const bool filters = std::string(o.name).rfind("zero_", 0) == 0;
        const bool skips = std::string(o.name) == "lazy";
        const auto special =
            [&](Case &
                    run) { // an infinity and NaN in each list of inputs, or what is filtered; or gradients of 0
                for (int64_t e = 0; skips && e < run.elements(run.find("gradients")); e++)
                    run.set(run.find("gradients"), e, 0);
                for (int a = 0; !skips && a < run.count(); a++) {
                    if ((schema.arguments[a].kind != TARTAN_OPERAND_ARRAYS && !filters) || run.is_output(a) ||
                        !run.is_array(a) || run.elements(a) < 2)
                        continue;
                    run.set(a, 0, INFINITY);
                    run.set(a, 1, NAN);
                }
            };
        for (const double low : {-1.7, 0.3, 0.31})
            for (int32_t other = -1; !differs && other < schema.noptions; other++) {
                if (other == i ||
                    (other >= 0 && (is_list(schema.options[other]) || is_count(schema.options[other]))))
                    continue;
                const std::string others = other < 0 ? ""
                                                     : std::string(schema.options[other].name) + "=" +
                                                           allowed(schema.options[other])[1] + " ";
                Wish wish;
                wish.dtype = TARTAN_F64, wish.low = low, wish.high = low + 1.4;
                std::vector<std::vector<std::string>> results;
                for (const std::string &value : allowed(o)) {
                    wish.options = others + o.name + "=" + value;
                    Case run(op, wish);
                    if (low == 0.31) special(run);
                    if (run.run(context) != TARTAN_OK) continue;
                    results.push_back(run.memory_of_outputs());
                }
                for (const auto &result : results) differs = differs || result != results[0];
            }
        EXPECT_TRUE(differs) << o.name << " has no effect";
    }
}

} // namespace
