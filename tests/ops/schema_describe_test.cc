// SPDX-License-Identifier: Apache-2.0
// Operations as data: finding, describing, inferring results, and the functions of operations.h.
#include "../support/json.h"
#include "../support/schema_case.h"

#include "operation_calls.h" // tests/ops/generate_calls.py

namespace {

using namespace tartan_test;

std::string describe(int32_t op, int32_t json) {
    char *text = nullptr;
    EXPECT_OK(tartan_op_describe(op, json, &text));
    const std::string copy = text == nullptr ? "" : text;
    tartan_text_free(text);
    return copy;
}

TEST(Operations, Find) {
    int32_t op = 5;
    EXPECT_EQ(tartan_i_schema_count, tartan_op_count());
    EXPECT_FAILS(HANDLE, "name is NULL", tartan_op_find(nullptr, &op));
    EXPECT_FAILS(HANDLE, "out_op is NULL", tartan_op_find("layer_norm", nullptr));
    EXPECT_FAILS(NOT_FOUND, "there is no operation 'layer'", tartan_op_find("layer", &op));
    EXPECT_EQ(-1, op);
    EXPECT_FAILS(NOT_FOUND, "there is no operation ''", tartan_op_find("", &op));
    for (int32_t i = 0; i < tartan_op_count(); i++) {
        ASSERT_OK(tartan_op_find(tartan_i_schemas[i].name, &op));
        EXPECT_EQ(i, op) << tartan_i_schemas[i].name;
        EXPECT_EQ(std::string("tartan_") + tartan_i_schemas[i].name, tartan_i_schemas[i].function);
    }
}

TEST(Operations, DescribeAll) {
    char *text = nullptr;
    EXPECT_FAILS(HANDLE, "out_text is NULL", tartan_op_describe(0, 0, nullptr));
    for (const int32_t op : {-2, tartan_op_count()}) {
        text = (char *)&text;
        EXPECT_FAILS(ARGUMENT,
                     "op is " + std::to_string(op) + ", expected -1 (all of them) or 0 .. " +
                         std::to_string(tartan_op_count() - 1),
                     tartan_op_describe(op, 0, &text));
        EXPECT_EQ(nullptr, text);
    }
    const Json all = Json::read(describe(-1, 1));
    ASSERT_EQ(Json::kList, all.kind);
    ASSERT_EQ((size_t)tartan_op_count(), all.items.size());
    std::string texts;
    for (int32_t i = 0; i < tartan_op_count(); i++) {
        EXPECT_EQ(tartan_i_schemas[i].name, all.items[(size_t)i]["name"].text);
        texts += (i == 0 ? "" : "\n") + describe(i, 0);
    }
    EXPECT_EQ(texts, describe(-1, 0));
}

TEST(Operations, DescribeWithoutMemory) {
    for (const int32_t json : {0, 1})
        for (const int32_t op : {0, -1}) {
            char *text = nullptr;
            BRUTAL(tartan_op_describe(op, json, &text), tartan_text_free(text));
        }
}

// Hand-made operands of `add`: what no argument alone says.
TEST(Operations, Broadcasting) {
    int32_t add = -1;
    ASSERT_OK(tartan_op_find("add", &add));
    float number = 1;
    const auto of = [&](const std::vector<int64_t> &shape) {
        tartan_array array = {};
        const int64_t none[TARTAN_MAX_NDIM] = {};
        EXPECT_OK(tartan_array_init(&number, TARTAN_F32, (int32_t)shape.size(), shape.data(), none, &array));
        return array;
    };
    tartan_op_result result;
    int64_t count = 5;
    const auto infer = [&](const std::vector<int64_t> &first, const std::vector<int64_t> &second) {
        tartan_array a = of(first), b = of(second);
        void *const given[] = {&a, &b, nullptr};
        return tartan_op_infer(add, given, 3, nullptr, &result, 1, &count);
    };
    const int64_t much = INT64_C(1) << 40;
    EXPECT_FAILS(OVERFLOW,
                 "tartan_add: y of shape [1099511627776, 1099511627776] is larger than what can be addressed",
                 infer({much, 1}, {much}));
    EXPECT_EQ(0, count);
    EXPECT_FAILS(SHAPE,
                 "tartan_add: b has shape [2], expected lengths that are 1 or those of a, [2, 3], counted "
                 "from the last",
                 infer({2, 3}, {2}));
    EXPECT_OK(infer({2, 1, 3}, {4, 1}));
    EXPECT_EQ(1, count);
    EXPECT_EQ((std::vector<int64_t>{2, 4, 3}),
              std::vector<int64_t>(result.shape, result.shape + result.ndim));
    EXPECT_EQ(-1, result.like);
    EXPECT_OK(infer({}, {4, 0}));
    EXPECT_EQ((std::vector<int64_t>{4, 0}), std::vector<int64_t>(result.shape, result.shape + result.ndim));
    EXPECT_EQ(1, result.like);
}

class Described : public ForOperation {};
FOR_EACH_OPERATION(Described);

TEST_P(Described, AsJson) {
    static const char *const uses[] = {"in", "out", "update"}, *const kinds[] = {"",       "array", "matrix",
                                                                                 "layout", "mask",  "conv",
                                                                                 "arrays"},
                             *const dtypes[] = {"NONE", "T", "P", "O",   "S",  "L",
                                                "M",    "R", "C", "F64", "U8", "I"},
                             *const options[] = {"real", "whole", "flag", "word", "sizes", "windows"};
    const Json json = Json::read(describe(op, 1));
    ASSERT_EQ(Json::kObject, json.kind) << describe(op, 1);
    EXPECT_EQ(schema.name, json["name"].text);
    for (const char *text : {"help", "formula", "details", "source", "gradient"})
        EXPECT_EQ(Json::kText, json[text].kind) << text;
    EXPECT_FALSE(json["help"].text.empty());
    ASSERT_EQ((size_t)schema.narguments, json["arguments"].items.size());
    for (int32_t i = 0; i < schema.narguments; i++) {
        const Json &said = json["arguments"].items[(size_t)i];
        const tartan_i_argument &a = schema.arguments[i];
        EXPECT_EQ(a.name, said["name"].text);
        EXPECT_EQ(uses[a.use], said["use"].text);
        EXPECT_EQ(kinds[a.kind], said["kind"].text);
        EXPECT_EQ(dtypes[a.dtype], said["dtype"].text);
        EXPECT_EQ(a.optional ? "true" : "false", said["optional"].text);
        EXPECT_EQ(a.shape, said["shape"].text);
        EXPECT_FALSE(said["help"].text.empty());
        uint32_t may_be = 0;
        for (const Json &name : said["may_be"].items)
            for (int32_t j = 0; j < schema.narguments; j++)
                if (name.text == schema.arguments[j].name) may_be |= UINT32_C(1) << j;
        EXPECT_EQ(a.may_be, may_be) << a.name;
        uint32_t old_arguments = 0, old_options = 0;
        for (const Json &name : said["old"].items) {
            for (int32_t j = 0; j < schema.narguments; j++)
                if (name.text == schema.arguments[j].name) old_arguments |= UINT32_C(1) << j;
            for (int32_t j = 0; j < schema.noptions; j++)
                if (name.text == schema.options[j].name) old_options |= UINT32_C(1) << j;
        }
        EXPECT_EQ(a.old_arguments, old_arguments) << a.name;
        EXPECT_EQ(a.old_options, old_options) << a.name;
    }
    ASSERT_EQ((size_t)schema.noptions, json["options"].items.size());
    for (int32_t i = 0; i < schema.noptions; i++) {
        const Json &said = json["options"].items[(size_t)i];
        const tartan_i_option_rule &o = schema.options[i];
        EXPECT_EQ(o.name, said["name"].text);
        EXPECT_EQ(options[o.kind], said["kind"].text);
        EXPECT_EQ(o.positional ? "true" : "false", said["positional"].text);
        EXPECT_FALSE(said["help"].text.empty());
        if (o.kind == TARTAN_I_OPTION_REAL || o.kind == TARTAN_I_OPTION_WHOLE) {
            const std::string usual = said["default"].text;
            char *end = nullptr;
            const double number = std::strtod(usual.c_str(), &end);
            EXPECT_TRUE(std::isnan(o.value) ? *end != '\0' : o.value == number) << o.name << ": " << usual;
        }
        EXPECT_EQ((size_t)o.nwords, said["words"].items.size());
    }
    // The gradient takes what `keeps` names, and a gradient of an output, and nothing else.
    if (json["gradient"].text.empty()) return;
    int32_t grad = -1;
    ASSERT_OK(tartan_op_find(json["gradient"].text.c_str(), &grad));
    for (int32_t i = 0; i < tartan_i_schemas[grad].narguments; i++) {
        const tartan_i_argument &a = tartan_i_schemas[grad].arguments[i];
        bool kept = false;
        for (const Json &name : json["keeps"].items) kept = kept || name.text == a.name;
        const std::string name = a.name, of = name.size() > 5 ? name.substr(0, name.size() - 5) : "";
        const bool is_gradient = of + "_grad" == name;
        bool has = false, output = false;
        for (int32_t j = 0; j < schema.narguments; j++) {
            has = has || name == schema.arguments[j].name || (is_gradient && of == schema.arguments[j].name);
            if (is_gradient && of == schema.arguments[j].name)
                output = schema.arguments[j].use != TARTAN_I_IN;
        }
        EXPECT_TRUE(has) << a.name << " is neither of " << schema.name << " nor a gradient of its arguments";
        EXPECT_EQ(a.use == TARTAN_I_IN && !is_gradient, kept) << a.name;
        EXPECT_TRUE(!is_gradient || (a.use == TARTAN_I_IN) == output) << a.name;
    }
    for (int32_t i = 0; i < tartan_i_schemas[grad].noptions; i++) {
        bool has = false;
        for (int32_t j = 0; j < schema.noptions; j++)
            has = has || std::string(schema.options[j].name) == tartan_i_schemas[grad].options[i].name;
        EXPECT_TRUE(has) << tartan_i_schemas[grad].options[i].name;
    }
}

TEST_P(Described, AsText) {
    const std::string text = describe(op, 0);
    EXPECT_EQ(0u, text.find(std::string(schema.name) + ": "));
    for (int32_t i = 0; i < schema.narguments; i++)
        EXPECT_NE(std::string::npos, text.find("\n  " + std::string(schema.arguments[i].name) + " ")) << text;
    for (int32_t i = 0; i < schema.noptions; i++)
        EXPECT_NE(std::string::npos, text.find(" " + std::string(schema.options[i].name))) << text;
    EXPECT_EQ('\n', text.back());
    EXPECT_EQ(std::string::npos, text.find(" \n"));
}

// Results that are made as infer says are accepted.
TEST_P(Described, InferredResults) {
    for (uint64_t seed = 0; seed < rounds(24u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Wish wish = random_wish(seed);
        wish.extras = seed % 3 == 0;
        if (seed % 8 == 7) wish.empty = (int)(seed / 8) % std::max(1, empties(schema));
        Case c(op, wish);
        for (int i = 0; i < c.count(); i++)
            if (c.rule(i).use == TARTAN_I_OUT) c.given[(size_t)i] = nullptr; // not looked at
        std::vector<tartan_op_result> results;
        ASSERT_OK(c.infer(results));
        int before = -1;
        for (const tartan_op_result &r : results) {
            ASSERT_GT(r.argument, before);
            before = r.argument;
            const tartan_i_argument &a = schema.arguments[r.argument];
            SCOPED_TRACE(a.name);
            ASSERT_EQ(TARTAN_I_OUT, a.use);
            EXPECT_EQ(a.kind, r.kind);
            EXPECT_EQ(a.optional, r.optional);
            EXPECT_EQ(c.has_old_values(r.argument), r.zeros);
            if (r.kind == TARTAN_OPERAND_ARRAY) {
                c.give_array(r.argument, Dense(r.dtype, {r.shape, r.shape + r.ndim}));
                if (r.like < 0) continue;
                ASSERT_EQ(c.array(r.like).ndim, r.ndim);
                EXPECT_TRUE(std::equal(r.shape, r.shape + r.ndim, c.array(r.like).shape));
            } else {
                ASSERT_GE(r.like, 0);
                tartan_layout *on = c.is_matrix(r.like) ? c.matrix(r.like)->layout : c.conv->layout;
                c.give_matrix(r.argument, c.new_matrix(on, r.dtype, TARTAN_ROW_MAJOR));
            }
        }
        for (int i = 0; i < c.count(); i++) {
            const std::string name = c.rule(i).name;
            const int of = name.size() > 5 ? c.find(name.substr(0, name.size() - 5)) : -1;
            const bool listed =
                std::any_of(results.begin(), results.end(), [&](auto &r) { return r.argument == i; });
            const bool of_nothing = c.rule(i).optional && of >= 0 && c.given[(size_t)of] == nullptr;
            EXPECT_EQ(c.rule(i).use == TARTAN_I_OUT && !of_nothing, listed) << name;
        }
        ASSERT_OK(c.run(context));
    }
}

// A number with which old values count is their factor.
TEST_P(Described, OldValuesHaveAFactor) {
    for (int i = 0; i < schema.narguments; i++)
        for (int32_t o = 0; o < schema.noptions; o++) {
            const tartan_i_option_rule &option = schema.options[o];
            if ((schema.arguments[i].old_options >> o & 1) == 0 || option.kind != TARTAN_I_OPTION_REAL)
                continue;
            Wish wish;
            wish.options = std::string(option.name) + "=0.5";
            Case c(op, wish), plain(op, Wish());
            c.fill(i, 1), plain.fill(i, 1);
            ASSERT_OK(c.run(context));
            ASSERT_OK(plain.run(context));
            for (int64_t e = 0; e < c.elements(i); e++)
                EXPECT_NEAR(plain.get(i, e) + 0.5, c.get(i, e), 1e-5 * (1 + std::fabs(plain.get(i, e))));
        }
}

TEST_P(Described, InferRefusals) {
    Case c(op, Wish());
    tartan_op_result results[TARTAN_I_MAX_ARGUMENTS];
    int64_t count = 7;
    const int64_t n = c.count();
    void *const *given = c.given.data();
    const std::string number = std::to_string(n), text = c.text();
    EXPECT_FAILS(HANDLE, "out_count is NULL", tartan_op_infer(op, given, n, nullptr, results, n, nullptr));
    EXPECT_FAILS(HANDLE, "results is NULL", tartan_op_infer(op, given, n, nullptr, nullptr, n, &count));
    EXPECT_EQ(0, count);
    EXPECT_FAILS(HANDLE, "arguments is NULL, expected " + number,
                 tartan_op_infer(op, nullptr, n, nullptr, results, n, &count));
    EXPECT_FAILS(ARGUMENT, "narguments is " + std::to_string(n + 1) + ", expected " + number,
                 tartan_op_infer(op, given, n + 1, nullptr, results, n, &count));
    bool has_results = false; // of its own, beside what it updates
    for (int32_t i = 0; i < schema.narguments; i++)
        has_results = has_results || schema.arguments[i].use == TARTAN_I_OUT;
    for (const int64_t room : {(int64_t)0, (int64_t)-1})
        if (has_results)
            EXPECT_FAILS(SHAPE, "nresults is " + std::to_string(room) + ", expected room for",
                         tartan_op_infer(op, given, n, text.c_str(), results, room, &count));
    for (const int32_t bad : {-1, tartan_op_count()}) {
        EXPECT_FAILS(ARGUMENT, "op is " + std::to_string(bad),
                     tartan_op_infer(bad, given, n, nullptr, results, n, &count));
        EXPECT_FAILS(ARGUMENT, "tartan_op_run: op is " + std::to_string(bad),
                     tartan_op_run(context, bad, given, n, nullptr));
    }
    EXPECT_FAILS(HANDLE, "tartan_op_run: arguments is NULL", tartan_op_run(context, op, nullptr, n, nullptr));
    EXPECT_FAILS(ARGUMENT,
                 "narguments is " + std::to_string(n - 1) + ", expected " + number + " (" + schema.name + ")",
                 tartan_op_run(context, op, given, n - 1, nullptr));
}

// The function of operations.h passes everything on in its place.
TEST_P(Described, PublicFunction) {
    for (uint64_t seed = 0; seed < rounds(9u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Wish wish = random_wish(seed);
        wish.extras = seed % 3 == 0;
        Case by_number(op, wish), by_name(op, wish);
        const std::vector<tartan_i_positional> numbers = positional(by_name);
        ASSERT_OK(by_number.run(context));
        ASSERT_OK(
            operation_calls[op](context, by_name.given.data(), numbers.data(), by_name.options.c_str()));
        EXPECT_TRUE(by_number.memory_of_outputs() == by_name.memory_of_outputs());
    }
    // Arguments in their order: each alone is a wrong handle.
    uint64_t closed[32] = {};
    for (int i = 0; i < schema.narguments; i++) {
        Case c(op, Wish());
        c.given[(size_t)i] = is_array_kind(c.rule(i).kind) ? nullptr : closed;
        if (c.given[(size_t)i] == nullptr && c.rule(i).optional) continue;
        const std::vector<tartan_i_positional> numbers = positional(c);
        EXPECT_FAILS(HANDLE, std::string(schema.function) + ": " + schema.arguments[i].name + " is ",
                     operation_calls[op](context, c.given.data(), numbers.data(), ""));
    }
    bool by_text = false;
    Case c(op, Wish());
    std::vector<tartan_i_positional> numbers = positional(c);
    for (int32_t i = 0, at = 0; i < schema.noptions; i++) {
        const tartan_i_option_rule &o = schema.options[i];
        by_text = by_text || !o.positional;
        if (!o.positional) continue;
        const tartan_i_positional good = numbers[(size_t)at];
        if (o.kind == TARTAN_I_OPTION_SIZES) {
            const int64_t sizes[8] = {1, 1, 1, 1, 1, 1, 1, 1};
            numbers[(size_t)at].sizes = {sizes, -1};
            EXPECT_FAILS(SHAPE, std::string(o.name) + " has -1 entries",
                         operation_calls[op](context, c.given.data(), numbers.data(), ""));
            numbers[(size_t)at].sizes = {nullptr, 2};
            EXPECT_FAILS(HANDLE, std::string(o.name) + " is NULL",
                         operation_calls[op](context, c.given.data(), numbers.data(), ""));
        } else if (o.kind == TARTAN_I_OPTION_WINDOWS) {
            numbers[(size_t)at].text = "size";
            EXPECT_FAILS(ARGUMENT, std::string(o.name) + " has 'size', expected name=value",
                         operation_calls[op](context, c.given.data(), numbers.data(), ""));
        } else if (is_count(o)) {
            numbers[(size_t)at].whole = 0;
            EXPECT_FAILS(ARGUMENT, std::string(o.name) + " is 0, expected ",
                         operation_calls[op](context, c.given.data(), numbers.data(), ""));
        } else {
            numbers[(size_t)at].number = NAN;
            EXPECT_FAILS(ARGUMENT, std::string(o.name) + " is nan, expected ",
                         operation_calls[op](context, c.given.data(), numbers.data(), ""));
        }
        numbers[(size_t)at++] = good;
    }
    // Its text has the other options alone.
    for (int32_t i = 0; by_text && i < schema.noptions; i++)
        if (schema.options[i].positional)
            EXPECT_FAILS(ARGUMENT, std::string("options has '") + schema.options[i].name + "=1', expected ",
                         operation_calls[op](context, c.given.data(), numbers.data(),
                                             (std::string(schema.options[i].name) + "=1").c_str()));
    if (by_text)
        EXPECT_FAILS(ARGUMENT, "options has 'nothing=1'",
                     operation_calls[op](context, c.given.data(), numbers.data(), "nothing=1"));
}

} // namespace
