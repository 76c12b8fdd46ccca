// SPDX-License-Identifier: Apache-2.0
// The checks of the generic call, with entries that are made up here: what the notation of the schema allows and no operation uses
// yet, and the exact words of refusals.
#include "../support/schema_case.h"

#include <algorithm>

namespace {

using namespace tartan_test;

tartan_i_dim name(int32_t index) {
    return {TARTAN_I_DIM_NAME, index, 0};
}
tartan_i_dim rest(int32_t index) {
    return {TARTAN_I_DIM_REST, index, 0};
}
tartan_i_dim constant(int32_t size) {
    return {TARTAN_I_DIM_CONSTANT, size, 0};
}
tartan_i_dim of_layout(tartan_i_dim_kind kind) {
    return {kind, 0, 0};
}

// An entry with two arguments, x and y, and the operands that they are called with.
class Call : public ::testing::Test {
  protected:
    tartan_i_argument arguments[2] = {argument("x"), argument("y")};
    Dense x = Dense(TARTAN_F32, {2, 3}), y = Dense(TARTAN_F32, {2, 3});
    const void *given[2] = {&x.array, &y.array};

    static tartan_i_argument argument(const char *called) {
        tartan_i_argument a = {};
        a.name = called, a.kind = TARTAN_OPERAND_ARRAY, a.dtype = TARTAN_I_DTYPE_T, a.shape = "any";
        a.rule.like = -1;
        return a;
    }
    static void set_shape(tartan_i_argument &a, const char *text,
                          const std::vector<std::vector<tartan_i_dim>> &alternatives) {
        a.shape = text;
        a.rule.alternatives = (int32_t)alternatives.size();
        for (size_t i = 0; i < alternatives.size(); i++) {
            a.rule.alternative[i].count = (int32_t)alternatives[i].size();
            a.rule.alternative[i].single = (int32_t)std::count_if(
                alternatives[i].begin(), alternatives[i].end(), [](const tartan_i_dim &d) {
                    return d.kind != TARTAN_I_DIM_REST && d.kind != TARTAN_I_DIM_BROADCAST;
                });
            std::copy(alternatives[i].begin(), alternatives[i].end(), a.rule.alternative[i].dims);
        }
    }
    // Of all arguments in their order, on the host or (without a context) anywhere.
    tartan_status check(tartan_context *context = cpu()) {
        tartan_i_schema schema = {};
        schema.function = "call", schema.arguments = arguments, schema.narguments = 2;
        tartan_i_bound bound = {};
        bound.schema = &schema, bound.context = context;
        for (int32_t i = 0; i < 2; i++) {
            const tartan_status status = tartan_i_op_check(&bound, given, i);
            if (status != TARTAN_OK) return status;
        }
        return tartan_i_op_check_apart(&bound, given);
    }
    void give_y(int32_t dtype, const std::vector<int64_t> &shape) {
        y = Dense(dtype, shape);
        given[1] = &y.array;
    }
};

TEST_F(Call, Dtypes) {
    const struct {
        tartan_i_dtype_rule rule;
        const char *of_f32, *of_f16; // what y may be, beside x; "" if anything
    } rules[] = {
        {TARTAN_I_DTYPE_T, "float32 (x is of float32)", "float16 (x is of float16)"},
        {TARTAN_I_DTYPE_O, "float32 (x is of float32)", "float32 or float16 (x is of float16)"},
        {TARTAN_I_DTYPE_S, "float32 (x is of float32)", "float32 (x is of float16)"},
        {TARTAN_I_DTYPE_L, "float32, float16 or bfloat16 (x is of float32)",
         "float32, float16 or bfloat16 (x is of float16)"},
        {TARTAN_I_DTYPE_M, "float32, float16, bfloat16 or float8_e4m3fn (x is of float32)",
         "float32, float16, bfloat16 or float8_e4m3fn (x is of float16)"},
        {TARTAN_I_DTYPE_C,
         "float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2 (x is of float32)",
         "float64, float32, float16, bfloat16, float8_e4m3fn or float8_e5m2 (x is of float16)"},
        {TARTAN_I_DTYPE_R, "float64 or float32", "float64 or float32"},
        {TARTAN_I_DTYPE_F64, "float64", "float64"},
    };
    for (const auto &rule : rules)
        for (const int32_t t : {TARTAN_F32, TARTAN_F16})
            for (int32_t dtype = TARTAN_F64; dtype <= TARTAN_F8E5M2; dtype++) {
                arguments[1].dtype = rule.rule;
                x = Dense(t, {2, 3});
                give_y(dtype, {2, 3});
                const std::string wanted = t == TARTAN_F32 ? rule.of_f32 : rule.of_f16,
                                  is = tartan_dtype_name(dtype);
                const std::string words = " " + wanted.substr(0, wanted.find(" (")) + ",";
                SCOPED_TRACE(is + " of " + wanted);
                std::string listed = words;
                std::replace(listed.begin(), listed.end(), ',', ' ');
                if (listed.find(" " + is + " ") != std::string::npos)
                    EXPECT_OK(check());
                else
                    EXPECT_FAILS(DTYPE, "call: y is of " + is + ", expected " + wanted, check());
            }
    arguments[1].dtype = TARTAN_I_DTYPE_NONE;
    EXPECT_OK(check());
}

TEST_F(Call, Indices) {
    arguments[1].dtype = TARTAN_I_DTYPE_I;
    EXPECT_FAILS(DTYPE, "call: y has dtype 2, expected 8, 9 or 7 (TARTAN_I32, TARTAN_I64 or TARTAN_U8)",
                 check());
    for (const int32_t dtype : {TARTAN_I32, TARTAN_I64, TARTAN_U8}) {
        give_y(dtype, {2, 3});
        EXPECT_OK(check());
        EXPECT_OK(check(nullptr));
    }
    y.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "call: y is on device 2:0", check());
    arguments[1].use = TARTAN_I_OUT;
    give_y(TARTAN_I64, {2, 3});
    EXPECT_OK(check());
    y.array.strides[0] = 0;
    EXPECT_FAILS(ARGUMENT, "call: y of shape [2, 3] has strides that repeat", check());
}

TEST_F(Call, Bytes) {
    arguments[1].dtype = TARTAN_I_DTYPE_U8;
    EXPECT_FAILS(DTYPE, "call: y has dtype 2, expected 7 (TARTAN_U8)", check());
    give_y(TARTAN_U8, {2, 3});
    EXPECT_OK(check());
    EXPECT_OK(check(nullptr));
    y.array.device_type = TARTAN_CUDA;
    EXPECT_FAILS(UNSUPPORTED, "call: y is on device 2:0", check());
    EXPECT_OK(check(nullptr));
    set_shape(arguments[1], "[a]", {{name(0)}});
    y.array.device_type = TARTAN_CPU;
    EXPECT_FAILS(SHAPE, "call: y has shape [2, 3], expected [a]", check());
}

TEST_F(Call, NamesAndConstants) {
    set_shape(arguments[0], "[a, b]", {{name(0), name(1)}});
    set_shape(arguments[1], "[b, a, 5]", {{name(1), name(0), constant(5)}});
    give_y(TARTAN_F32, {3, 2, 5});
    EXPECT_OK(check());
    for (const std::vector<int64_t> &shape :
         std::vector<std::vector<int64_t>>{{3, 2, 4}, {2, 2, 5}, {3, 3, 5}, {3, 2}, {3, 2, 5, 1}, {}}) {
        give_y(TARTAN_F32, shape);
        char text[TARTAN_I_SHAPE_TEXT];
        EXPECT_FAILS(SHAPE,
                     std::string("call: y has shape ") + tartan_i_shape_text(&y.array, text) +
                         ", expected [3, 2, 5], which is [b, a, 5]",
                     check());
    }
    // A name twice in one shape.
    set_shape(arguments[1], "[c, c]", {{name(2), name(2)}});
    give_y(TARTAN_F32, {4, 4});
    EXPECT_OK(check());
    give_y(TARTAN_F32, {4, 3});
    EXPECT_FAILS(SHAPE, "call: y has shape [4, 3], expected [c, c]", check());
}

TEST_F(Call, RunsOfDimensions) {
    set_shape(arguments[0], "[lines..., n]", {{rest(0), name(1)}});
    set_shape(arguments[1], "[lines..., n, 2]", {{rest(0), name(1), constant(2)}});
    x = Dense(TARTAN_F32, {});
    EXPECT_FAILS(SHAPE, "call: x has shape [], expected [lines..., n]", check());
    x = Dense(TARTAN_F32, {4});
    give_y(TARTAN_F32, {4, 2});
    EXPECT_OK(check());
    x = Dense(TARTAN_F32, {1, 1, 1, 1, 1, 1, 1, 4});
    EXPECT_FAILS(SHAPE, "call: y has shape [4, 2], expected [lines..., 4, 2], which is [lines..., n, 2]",
                 check()); // nine dimensions
}

TEST_F(Call, Alternatives) {
    set_shape(arguments[0], "[a] or [b, a]", {{name(0)}, {name(1), name(0)}});
    set_shape(arguments[1], "[a] or [b, a]", {{name(0)}, {name(1), name(0)}});
    for (const std::vector<int64_t> &good : std::vector<std::vector<int64_t>>{{3}, {2, 3}}) {
        give_y(TARTAN_F32, good);
        EXPECT_OK(check());
    }
    for (const std::vector<int64_t> &bad :
         std::vector<std::vector<int64_t>>{{2}, {3, 3}, {2, 2}, {2, 3, 1}, {}}) {
        give_y(TARTAN_F32, bad);
        char text[TARTAN_I_SHAPE_TEXT];
        EXPECT_FAILS(SHAPE,
                     std::string("call: y has shape ") + tartan_i_shape_text(&y.array, text) +
                         ", expected [3] or [2, 3], which is [a] or [b, a]",
                     check());
    }
    // The alternative that does not fit leaves no trace: here [c, d, 4] would set c to 2.
    set_shape(arguments[0], "[c, d, 4] or [d, c, e]",
              {{name(0), name(1), constant(4)}, {name(1), name(0), name(2)}});
    set_shape(arguments[1], "[c, d]", {{name(0), name(1)}});
    x = Dense(TARTAN_F32, {2, 3, 5});
    give_y(TARTAN_F32, {3, 2});
    EXPECT_OK(check());
}

TEST_F(Call, SizesOfALayout) {
    const Layout layout = random_layout({11, 9, 4, 3, 2}, 1, 1);
    set_shape(arguments[1], "[x.blocks, x.rows, x.cols, x.heads]",
              {{of_layout(TARTAN_I_DIM_BLOCKS), of_layout(TARTAN_I_DIM_ROWS), of_layout(TARTAN_I_DIM_COLS),
                of_layout(TARTAN_I_DIM_HEADS)}});
    std::mt19937_64 random(1);
    const Matrix matrix = random_matrix(layout, TARTAN_F32, TARTAN_ROW_MAJOR, random);
    arguments[0].kind = TARTAN_OPERAND_MATRIX;
    given[0] = matrix.get();
    for (const bool by_layout : {false, true}) {
        if (by_layout) {
            arguments[0].kind = TARTAN_OPERAND_LAYOUT, arguments[0].dtype = TARTAN_I_DTYPE_NONE;
            given[0] = layout.get();
        }
        give_y(TARTAN_F32, {18, 11, 9, 2});
        EXPECT_OK(check());
        give_y(TARTAN_F32, {18, 11, 9, 1});
        EXPECT_FAILS(SHAPE, "expected [18, 11, 9, 2], which is [x.blocks, x.rows, x.cols, x.heads]", check());
    }
    given[0] = nullptr;
    EXPECT_FAILS(HANDLE, "call: x is NULL, expected an open layout", check());
    given[0] = &random;
    EXPECT_FAILS(HANDLE, "call: x is closed or not one of Tartan's, expected an open layout", check());
}

TEST_F(Call, ShapesOfOthers) {
    arguments[1].rule.like = 0;
    EXPECT_OK(check());
    give_y(TARTAN_F32, {3, 2});
    EXPECT_FAILS(SHAPE, "call: y has shape [3, 2], expected [2, 3] (as x)", check());
    arguments[0].optional = true;
    arguments[1].dtype = TARTAN_I_DTYPE_R;
    given[0] = nullptr;
    EXPECT_FAILS(ARGUMENT, "call: y is given without x, whose shape it has", check());
}

// Shapes by a function: x has two columns, y is the first row of x, repeated. The option is the number of rows of y.
class ComputedShapes : public Call {
  protected:
    enum { X = 64, Y = 72, ROWS = 80 }; // places in the largest struct
    tartan_i_option_rule rows = {};
    tartan_i_schema schema = {};
    tartan_op op = {};

    ComputedShapes() {
        arguments[0].shape = "[n, 2]", arguments[0].rule.computed = true, arguments[0].member = X;
        arguments[1].shape = "[rows, 2]", arguments[1].rule.computed = true, arguments[1].member = Y;
        arguments[1].use = TARTAN_I_OUT;
        rows.name = "rows", rows.kind = TARTAN_I_OPTION_WHOLE, rows.member = ROWS, rows.value = 4;
        rows.high = HUGE_VAL;
        schema.function = "call", schema.arguments = arguments, schema.narguments = 2;
        schema.options = &rows, schema.noptions = 1, schema.shapes = shapes, schema.size = sizeof(tartan_op);
        op.schema = &schema;
        x = Dense(TARTAN_F32, {3, 2});
        give_y(TARTAN_F32, {4, 2});
    }
    template <typename T> static T &member(const tartan_op *of, size_t place) {
        return *(T *)((char *)of + place);
    }
    static tartan_status shapes(const tartan_op *of, int32_t argument, tartan_array *shape) {
        const tartan_array *x = member<const tartan_array *>(of, X);
        if (x->ndim != 2) return tartan_i_fail(TARTAN_ERR_SHAPE, "call", "x is no matrix");
        EXPECT_TRUE(argument != 0 || shape->ndim == 2); // that of x
        shape->ndim = 2;
        shape->shape[1] = 2;
        if (argument == 1) shape->shape[0] = member<int64_t>(of, ROWS);
        return TARTAN_OK;
    }
    tartan_status run(const char *options) {
        return tartan_i_op_call(&schema, cpu(), given, nullptr, options);
    }
};

TEST_F(ComputedShapes, AreChecked) {
    member<const tartan_array *>(&op, X) = &x.array, member<int64_t>(&op, ROWS) = 4;
    EXPECT_OK(tartan_i_op_check_computed(&op, given, false));
    give_y(TARTAN_F32, {2, 4});
    EXPECT_OK(tartan_i_op_check_computed(&op, given, true));
    EXPECT_FAILS(SHAPE, "call: y has shape [2, 4], expected [4, 2], which is [rows, 2]", run(nullptr));
    EXPECT_FAILS(SHAPE, "call: y has shape [2, 4], expected [7, 2], which is [rows, 2]", run("rows=7"));
    give_y(TARTAN_F32, {4, 2, 1});
    EXPECT_FAILS(SHAPE, "call: y has shape [4, 2, 1], expected [4, 2], which is [rows, 2]", run(nullptr));
    arguments[1].optional = true, given[1] = nullptr;
    EXPECT_OK(tartan_i_op_check_computed(&op, given, false));
    x = Dense(TARTAN_F32, {2, 3});
    EXPECT_FAILS(SHAPE, "call: x has shape [2, 3], expected [2, 2], which is [n, 2]", run(nullptr));
    x = Dense(TARTAN_F32, {2});
    EXPECT_FAILS(SHAPE, "call: x is no matrix", run(nullptr));
}

TEST_F(ComputedShapes, AreInferred) {
    tartan_op_result result;
    int64_t count = 0;
    const auto infer = [&](const char *options) {
        count = 0;
        return tartan_i_op_results(&schema, given, options, &result, 1, &count);
    };
    given[1] = nullptr; // not looked at
    for (const int64_t rows_of_y : {4, 7}) {
        ASSERT_OK(infer(rows_of_y == 4 ? nullptr : "rows=7"));
        ASSERT_EQ(1, count);
        EXPECT_EQ(1, result.argument);
        EXPECT_EQ((std::vector<int64_t>{rows_of_y, 2}),
                  std::vector<int64_t>(result.shape, result.shape + result.ndim));
    }
    EXPECT_FAILS(OVERFLOW, "call: y of shape [4611686018427387904, 2] is larger than what can be addressed",
                 infer("rows=4611686018427387904"));
    x = Dense(TARTAN_F32, {2, 3});
    EXPECT_FAILS(SHAPE, "call: x has shape [2, 3], expected [2, 2], which is [n, 2]", infer(nullptr));
    x = Dense(TARTAN_F32, {2});
    EXPECT_FAILS(SHAPE, "call: x is no matrix", infer(nullptr));
}

// The rule about overlap holds for operands with one element, or of one length, too.
TEST_F(Call, InPlace) {
    arguments[1].use = TARTAN_I_OUT;
    x = Dense(TARTAN_F32, {1, 3});
    y.array = x.array;
    y.array.strides[0] = 77; // of a dimension of length 1
    EXPECT_FAILS(ARGUMENT, "call: y overlaps x, expected separate memory", check());
    arguments[1].may_be = 1;
    EXPECT_OK(check());
    y.array.dtype = TARTAN_F16;
    arguments[1].dtype = TARTAN_I_DTYPE_NONE;
    EXPECT_FAILS(ARGUMENT, "call: y overlaps x", check());
    y.array = x.array;
    y.array.ndim = 1, y.array.shape[0] = 3, y.array.strides[0] = 1;
    EXPECT_FAILS(ARGUMENT, "call: y overlaps x", check());
    y.array = x.array;
    y.array.data = (float *)x.array.data + 1;
    EXPECT_FAILS(ARGUMENT, "call: y overlaps x", check());
    // Two outputs, whichever comes first; and an input after the output.
    arguments[0].use = TARTAN_I_UPDATE;
    y.array = x.array;
    EXPECT_OK(check());
    arguments[1].may_be = 0;
    EXPECT_FAILS(ARGUMENT, "call: y overlaps x", check());
    arguments[1].use = TARTAN_I_IN;
    EXPECT_FAILS(ARGUMENT, "call: x overlaps y", check());
    arguments[0].use = TARTAN_I_IN;
    EXPECT_OK(check());
}

TEST_F(Call, InPlaceOfMatrices) {
    arguments[1].use = TARTAN_I_OUT, arguments[1].may_be = 1;
    for (tartan_i_argument &a : arguments) a.kind = TARTAN_OPERAND_MATRIX;
    for (const bool square : {true, false}) {
        const tartan_shape shape = square ? tartan_shape{8, 8, 4, 4, 1} : tartan_shape{8, 8, 4, 1, 1};
        const Layout layout = random_layout(shape, 1, 1);
        std::vector<float> values(64);
        const auto wrap = [&](bool by_rows) {
            const int64_t sizes[] = {layout->blocks, 4, shape.block_cols},
                          strides[] = {4 * shape.block_cols, by_rows ? shape.block_cols : 1, by_rows ? 1 : 4};
            tartan_array array = {};
            EXPECT_OK(tartan_array_init(values.data(), TARTAN_F32, 3, sizes, strides, &array));
            tartan_matrix *raw = nullptr;
            EXPECT_OK(tartan_matrix_wrap(layout.get(), &array, nullptr, nullptr, &raw));
            return Matrix(raw);
        };
        const Matrix rows = wrap(true), again = wrap(true), columns = wrap(false);
        given[0] = rows.get(), given[1] = again.get();
        EXPECT_OK(check());
        given[1] = columns.get();
        if (square)
            EXPECT_FAILS(ARGUMENT, "call: y overlaps x", check());
        else
            EXPECT_OK(check()); // blocks of one column are the same in both orders
    }
}

// ---- Options ----

class CallOptions : public ::testing::Test {
  protected:
    tartan_op op = {};
    tartan_i_option_rule rules[5] = {};
    tartan_i_option_room room;

    CallOptions() {
        static const char *const words[] = {"sum", "mean", "none"};
        const auto set = [&](int i, const char *called, tartan_i_option_kind kind, double value,
                             const char *range) {
            rules[i].name = called, rules[i].kind = kind, rules[i].value = value, rules[i].range = range;
            rules[i].member = 64 + 16 * (size_t)i; // a place in the largest struct
            rules[i].low = -HUGE_VAL, rules[i].high = HUGE_VAL;
        };
        set(0, "rate", TARTAN_I_OPTION_REAL, 0.25, "a finite number of 0 or more and below 1");
        rules[0].low = 0, rules[0].high = 1, rules[0].below = true;
        set(1, "count", TARTAN_I_OPTION_WHOLE, 3, "a whole number above 0 and of 9 or less");
        rules[1].low = 0, rules[1].above = true, rules[1].high = 9;
        set(2, "fast", TARTAN_I_OPTION_FLAG, 0, "0 or 1");
        set(3, "mode", TARTAN_I_OPTION_WORD, 1, "sum, mean or none");
        rules[3].words = words, rules[3].nwords = 3;
        set(4, "sizes", TARTAN_I_OPTION_SIZES, 0, "whole numbers joined by x");
        rules[4].positional = true;
    }
    template <typename T> T value(int i) const {
        T found;
        std::memcpy(&found, (const char *)&op + rules[i].member, sizeof found);
        return found;
    }
    tartan_status read(const char *text, const tartan_i_positional *positional = nullptr) {
        tartan_i_schema schema = {};
        schema.function = "call", schema.options = rules, schema.noptions = 5;
        return tartan_i_op_options(&schema, &op, positional, text, &room);
    }
};

TEST_F(CallOptions, Values) {
    for (const char *none : {(const char *)nullptr, "", " , "}) {
        ASSERT_OK(read(none));
        EXPECT_EQ(0.25, value<double>(0));
        EXPECT_EQ(3, value<int64_t>(1));
        EXPECT_FALSE(value<bool>(2));
        EXPECT_EQ(1, value<int32_t>(3));
        EXPECT_EQ(0, value<tartan_i_sizes>(4).count);
        EXPECT_EQ(nullptr, value<tartan_i_sizes>(4).data);
    }
    ASSERT_OK(read("mode=none,sizes=3x0x-5 rate=0 fast=1\tcount=0x9"));
    EXPECT_EQ(0, value<double>(0));
    EXPECT_EQ(9, value<int64_t>(1));
    EXPECT_TRUE(value<bool>(2));
    EXPECT_EQ(2, value<int32_t>(3));
    ASSERT_EQ(3, value<tartan_i_sizes>(4).count);
    EXPECT_EQ(0, value<tartan_i_sizes>(4).data[1]);
    EXPECT_EQ(-5, value<tartan_i_sizes>(4).data[2]);
    ASSERT_OK(read("mode=sum sizes=1x2x3x4x5x6"));
    EXPECT_EQ(0, value<int32_t>(3));
    EXPECT_EQ(6, value<tartan_i_sizes>(4).count);
    rules[2].value = 1; // on unless it is turned off
    ASSERT_OK(read(nullptr));
    EXPECT_TRUE(value<bool>(2));
    ASSERT_OK(read("fast=0"));
    EXPECT_FALSE(value<bool>(2));
}

TEST_F(CallOptions, Refusals) {
    EXPECT_FAILS(ARGUMENT, "call: options has 'modes=sum', expected rate, count, fast, mode or sizes",
                 read("modes=sum"));
    EXPECT_FAILS(ARGUMENT, "call: options has 'mode=mea', expected mode to be sum, mean or none",
                 read("mode=mea"));
    EXPECT_FAILS(ARGUMENT, "call: options has 'fast=yes', expected fast to be 0 or 1", read("fast=yes"));
    EXPECT_FAILS(ARGUMENT,
                 "call: options has 'rate=1', expected rate to be a finite number of 0 or more and below 1",
                 read("rate=1"));
    EXPECT_FAILS(ARGUMENT, "call: options has 'rate=-1e-9', expected rate to be", read("rate=-1e-9"));
    EXPECT_FAILS(ARGUMENT,
                 "call: options has 'count=0', expected count to be a whole number above 0 and of 9 or less",
                 read("count=0"));
    EXPECT_FAILS(ARGUMENT, "call: options has 'count=10', expected count to be", read("count=10"));
    EXPECT_FAILS(ARGUMENT, "call: options has 'count=1.0', expected count to be", read("count=1.0"));
    EXPECT_FAILS(ARGUMENT,
                 "call: options has 'sizes=1x2x3x4x5x6x7', expected sizes to be whole numbers joined by x",
                 read("sizes=1x2x3x4x5x6x7"));
    EXPECT_FAILS(ARGUMENT, "call: options has fast twice, expected it once", read("fast=1 rate=0.5 fast=1"));
}

TEST_F(CallOptions, ArgumentsOfTheirOwn) {
    const int64_t list[] = {7, 8};
    tartan_i_positional sizes;
    sizes.sizes = {list, 2};
    ASSERT_OK(read("rate=0.5", &sizes));
    EXPECT_EQ(list, value<tartan_i_sizes>(4).data);
    EXPECT_EQ(2, value<tartan_i_sizes>(4).count);
    EXPECT_FAILS(ARGUMENT, "call: options has 'sizes=3', expected rate, count, fast or mode",
                 read("sizes=3", &sizes));
    sizes.sizes = {nullptr, 2};
    EXPECT_FAILS(HANDLE, "call: sizes is NULL, expected 2 entries", read("", &sizes));
    sizes.sizes = {list, -2};
    EXPECT_FAILS(SHAPE, "call: sizes has -2 entries, expected 0 or more", read("", &sizes));
    sizes.sizes = {nullptr, 0};
    ASSERT_OK(read("", &sizes));
    rules[0].positional = true;
    tartan_i_positional both[2];
    both[0].number = 1, both[1].sizes = {list, 1};
    EXPECT_FAILS(ARGUMENT, "call: rate is 1, expected a finite number of 0 or more and below 1",
                 read("", both));
    both[0].number = 0.75;
    ASSERT_OK(read("", both));
    EXPECT_EQ(0.75, value<double>(0));
    EXPECT_EQ(1, value<tartan_i_sizes>(4).count);
}

} // namespace
