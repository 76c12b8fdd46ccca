// SPDX-License-Identifier: Apache-2.0
// What every operation of the schema refuses, and that nothing is written then: each argument that is NULL, closed, of another kind,
// dtype, shape or device, and each allocation that fails.
#include "../support/schema_rules.h"

namespace {

using namespace tartan_test;

class Refusals : public ForOperation {
  protected:
    // The call fails with a text that begins with the function and `text`, and writes nothing. For an input, infer says the same.
    void expect_refused(Case &c, tartan_status status, const std::string &text, bool of_input = false) {
        const auto before = c.memory_of_outputs();
        ASSERT_EQ(status, c.run(context)) << tartan_last_error();
        const std::string said = tartan_last_error(), begin = std::string(schema.function) + ": " + text;
        ASSERT_EQ(begin, said.substr(0, begin.size()));
        ASSERT_TRUE(before == c.memory_of_outputs()) << "a refused call wrote: " << said;
        if (!of_input) return;
        std::vector<tartan_op_result> results;
        ASSERT_EQ(status, c.infer(results)) << tartan_last_error();
        ASSERT_EQ(said, tartan_last_error());
    }
    void expect_verdict(Case &c, const char *what) {
        SCOPED_TRACE(what);
        const Verdict verdict = Rules(c).judge();
        if (verdict.status != TARTAN_OK) {
            const tartan_i_argument &a = c.rule(verdict.argument);
            expect_refused(c, verdict.status, std::string(a.name) + " ", a.use != TARTAN_I_OUT);
        } else if (schema.check == nullptr && schema.shapes == nullptr) {
            ASSERT_OK(c.run(context));
        } else if (c.run(context) != TARTAN_OK) { // by a function of the entry
            const auto before = c.memory_of_outputs();
            const tartan_status status = c.run(context);
            ASSERT_TRUE(status == TARTAN_ERR_SHAPE || status == TARTAN_ERR_DTYPE ||
                        status == TARTAN_ERR_ARGUMENT)
                << tartan_last_error();
            ASSERT_TRUE(before == c.memory_of_outputs());
        }
    }
    Case plain() { return Case(op, Wish()); }
};
FOR_EACH_OPERATION(Refusals);

// Whatever the rules allow runs; without it no refusal below would mean anything.
TEST_P(Refusals, NothingThatFits) {
    for (const bool optionals : {true, false})
        for (const bool extras : {false, true})
            for (const int32_t dtype : dtypes_of(schema)) {
                SCOPED_TRACE(::testing::Message() << tartan_dtype_name(dtype) << " " << optionals << extras);
                Wish wish;
                wish.dtype = dtype, wish.optionals = optionals, wish.extras = extras;
                Case c(op, wish);
                ASSERT_OK(c.run(context));
            }
    for (uint64_t seed = 0; seed < rounds(40u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Case c(op, random_wish(seed));
        ASSERT_EQ(TARTAN_OK, Rules(c).judge().status);
        ASSERT_OK(c.run(context));
    }
}

TEST_P(Refusals, ArgumentsThatAreNull) {
    for (int i = 0; i < schema.narguments; i++) {
        SCOPED_TRACE(schema.arguments[i].name);
        Case c = plain();
        c.given[(size_t)i] = nullptr;
        if (schema.arguments[i].optional) {
            ASSERT_TRUE(c.run(context) == TARTAN_OK || schema.check != nullptr) << tartan_last_error();
        } else {
            expect_refused(c, TARTAN_ERR_HANDLE,
                           std::string(schema.arguments[i].name) + " is NULL, expected ",
                           !c.is_output(i) || schema.arguments[i].use == TARTAN_I_UPDATE);
        }
    }
}

// Operations whose entry does not say VARIABLE refuse them, whatever their kernels would make of such blocks.
TEST_P(Refusals, BlocksOfDifferentSizes) {
    const Layout layout = with_boundaries(from_mask({2, 2, 1, 1, 1}, {1, 1, 0, 1}), {0, 1, 4}, {0, 1, 4});
    tartan_matrix *raw = nullptr;
    ASSERT_OK(tartan_matrix_create(layout.get(), TARTAN_F32, TARTAN_ROW_MAJOR, &raw));
    const Matrix matrix(raw);
    for (int i = 0; i < schema.narguments; i++) {
        const tartan_i_argument &a = schema.arguments[i];
        if (a.variable || (a.kind != TARTAN_OPERAND_MATRIX && a.kind != TARTAN_OPERAND_LAYOUT)) continue;
        SCOPED_TRACE(a.name);
        Case c = plain();
        c.given[(size_t)i] = a.kind == TARTAN_OPERAND_MATRIX ? (void *)matrix.get() : layout.get();
        expect_refused(c, TARTAN_ERR_UNSUPPORTED, std::string(a.name) + " has blocks of different sizes",
                       a.use != TARTAN_I_OUT);
    }
}

TEST_P(Refusals, HandlesThatAreClosedOrOfAnotherKind) {
    const Layout layout = random_layout({4, 4, 2, 2, 1}, 1, 1);
    Case matrix = plain();
    uint64_t closed[32] = {};
    for (int i = 0; i < schema.narguments; i++) {
        const tartan_i_argument &a = schema.arguments[i];
        SCOPED_TRACE(a.name);
        if (is_array_kind(a.kind)) continue;
        void *others[] = {closed, a.kind == TARTAN_OPERAND_LAYOUT ? (void *)context : (void *)layout.get()};
        for (void *other : others) {
            Case c = plain();
            c.given[(size_t)i] = other;
            expect_refused(c, TARTAN_ERR_HANDLE,
                           std::string(a.name) + " is closed or not one of Tartan's, expected an open ",
                           a.use != TARTAN_I_OUT);
        }
    }
    Case c = plain();
    for (tartan_context *none : {(tartan_context *)nullptr, (tartan_context *)closed})
        EXPECT_FAILS(HANDLE, std::string(schema.function) + ": context is ", c.run(none));
}

// Descriptors that no operation takes.
TEST_P(Refusals, ArraysThatAreNone) {
    const struct {
        tartan_status status;
        const char *says;
        void (*spoil)(tartan_array &);
        bool of_outputs;
    } faults[] = {
        {TARTAN_ERR_HANDLE, " of shape ", [](tartan_array &a) { a.data = nullptr; }, false},
        {TARTAN_ERR_DTYPE, " has dtype 0", [](tartan_array &a) { a.dtype = 0; }, false},
        {TARTAN_ERR_DTYPE, " has dtype 99", [](tartan_array &a) { a.dtype = 99; }, false},
        {TARTAN_ERR_ARGUMENT, " has ndim -1", [](tartan_array &a) { a.ndim = -1; }, false},
        {TARTAN_ERR_ARGUMENT, " has ndim 9", [](tartan_array &a) { a.ndim = 9; }, false},
        {TARTAN_ERR_SHAPE, " has shape [-1", [](tartan_array &a) { a.shape[0] = -1; }, false},
        {TARTAN_ERR_UNSUPPORTED, " is on device type 7", [](tartan_array &a) { a.device_type = 7; }, false},
        {TARTAN_ERR_ARGUMENT, " has data at ", [](tartan_array &a) { a.data = (char *)a.data + 1; }, false},
        {TARTAN_ERR_OVERFLOW, " of shape ", [](tartan_array &a) { a.strides[0] = INT64_MAX; }, false},
        {TARTAN_ERR_ARGUMENT, " of shape ", [](tartan_array &a) { a.strides[0] = 0; }, true},
    };
    for (int i = 0; i < schema.narguments; i++) {
        if (!is_array_kind(schema.arguments[i].kind)) continue;
        for (const auto &fault : faults) {
            Case c = plain();
            SCOPED_TRACE(::testing::Message() << schema.arguments[i].name << fault.says);
            ASSERT_GT(c.array(i).ndim, 0);
            if (fault.of_outputs && !c.is_output(i)) continue;
            const bool is_byte = tartan_dtype_bytes(c.array(i).dtype) == 1; // which lie anywhere
            if (is_byte && std::string(fault.says) == " has data at ") continue;
            tartan_array spoilt = c.array(i);
            fault.spoil(spoilt);
            const bool of_strides = spoilt.strides[0] != c.array(i).strides[0];
            if (of_strides && spoilt.shape[0] == 1) continue; // strides of one element don't count
            c.given[(size_t)i] = &spoilt;
            expect_refused(c, fault.status, schema.arguments[i].name + std::string(fault.says),
                           schema.arguments[i].use != TARTAN_I_OUT);
        }
    }
}

TEST_P(Refusals, OtherDevices) {
    for (int i = 0; i < schema.narguments; i++) {
        const std::string text = schema.arguments[i].name + std::string(" is on device 2:0, expected 1:0");
        SCOPED_TRACE(text);
        Case c = plain();
        if (c.is_array(i)) {
            c.array(i).device_type = TARTAN_CUDA;
            expect_refused(c, TARTAN_ERR_UNSUPPORTED, text);
        } else if (c.is_matrix(i)) {
            tartan_i_matrix_set_device(c.matrix(i), TARTAN_CUDA, 0);
            expect_refused(c, TARTAN_ERR_UNSUPPORTED, text);
            tartan_i_matrix_set_device(c.matrix(i), TARTAN_CPU, 0);
        }
    }
}

// Every argument with every dtype, the others as they were; with the memory that it needs.
TEST_P(Refusals, Dtypes) {
    for (const int32_t t : dtypes_of(schema))
        for (int i = 0; i < schema.narguments; i++)
            for (int32_t dtype = TARTAN_F64; dtype <= TARTAN_I64; dtype++) {
                Wish wish;
                wish.dtype = t;
                Case c(op, wish);
                if (!c.has_values(i) || (dtype >= TARTAN_U8 && c.is_matrix(i))) continue;
                if (c.is_matrix(i)) {
                    c.give_matrix(i, c.new_matrix(c.matrix(i)->layout, dtype, c.matrix(i)->block_order));
                } else {
                    const tartan_array a = c.array(i);
                    c.give_array(i, Dense(dtype, {a.shape, a.shape + a.ndim}));
                    if (schema.arguments[i].dtype == TARTAN_I_DTYPE_I) c.fill(i, 0);
                }
                expect_verdict(c, (std::string(tartan_dtype_name(t)) + ", and " + schema.arguments[i].name +
                                   " of " + tartan_dtype_name(dtype))
                                      .c_str());
                if (HasFailure()) return;
            }
}

// Every array with one length more or less, with one dimension more or less.
TEST_P(Refusals, Shapes) {
    for (const bool extras : {false, true})
        for (int i = 0; i < schema.narguments; i++)
            for (int change = 0; change < 4 * TARTAN_MAX_NDIM; change++) {
                const size_t d = (size_t)change / 4;
                Wish wish;
                wish.extras = extras;
                Case c(op, wish);
                if (!c.is_array(i)) break;
                std::vector<int64_t> shape(c.array(i).shape, c.array(i).shape + c.array(i).ndim);
                if (d >= shape.size() + (change % 4 == 3)) break;
                const auto at = shape.begin() + (std::ptrdiff_t)d;
                if (change % 4 == 0) ++*at;
                if (change % 4 == 1) --*at;
                if (change % 4 == 2) shape.erase(at);
                if (change % 4 == 3) shape.insert(at, 1);
                c.give_array(i, Dense(c.array(i).dtype, shape));
                c.dense(i).fill(c.random(), 0.5, 1.5);
                expect_verdict(
                    c, (std::string(schema.arguments[i].name) + " of " + ::testing::PrintToString(shape))
                           .c_str());
                if (HasFailure()) return;
            }
}

// A matrix or mask on another layout than the argument that it must match.
TEST_P(Refusals, Layouts) {
    const Layout other = random_layout({11, 9, 4, 3, 2}, 0.6, 77);
    for (int i = 0; i < schema.narguments; i++) {
        const tartan_i_argument &a = schema.arguments[i];
        if (a.rule.like < 0 || is_array_kind(a.kind)) continue;
        SCOPED_TRACE(a.name);
        Case c = plain();
        Mask mask;
        if (a.kind == TARTAN_OPERAND_MATRIX) {
            c.give_matrix(i, c.new_matrix(other.get(), c.dtype_of(i), TARTAN_ROW_MAJOR));
        } else {
            tartan_block_mask *raw = nullptr;
            const std::vector<uint8_t> bits((size_t)other->blocks * 4 * 4, 0xff);
            ASSERT_OK(tartan_block_mask_from_bits(other.get(), bits.data(), (int64_t)bits.size(), &raw));
            mask.reset(raw);
            c.given[(size_t)i] = raw;
        }
        expect_refused(c, TARTAN_ERR_LAYOUT, std::string(a.name) + " has another layout than ",
                       a.use != TARTAN_I_OUT);
        // An equal one will do.
        if (!c.is_matrix(i) || c.rule(a.rule.like).kind != TARTAN_OPERAND_MATRIX) continue;
        Case equal = plain();
        const tartan_layout *l = equal.matrix(i)->layout;
        const Layout again = random_layout(l->shape, 0.6, equal.wish.seed);
        ASSERT_NE(l, again.get());
        ASSERT_TRUE(tartan_layout_equal(l, again.get()));
        equal.give_matrix(i, equal.new_matrix(again.get(), equal.dtype_of(i), TARTAN_COL_MAJOR));
        ASSERT_OK(equal.run(context));
    }
}

TEST_P(Refusals, FailedAllocations) {
    for (uint64_t seed = 0; seed < rounds(4u); seed++) {
        Wish wish = random_wish(seed);
        wish.scale = seed == 0 ? 1 : 5, wish.plain_sizes = seed > 0;
        wish.extras = seed % 2 == 1;
        Case c(op, wish), want(op, wish);
        const auto before = c.memory_of_outputs();
        const auto call = [&] {
            const tartan_status status =
                in_new_context(3, [&](tartan_context *other) { return c.run(other); });
            EXPECT_TRUE(status == TARTAN_OK || before == c.memory_of_outputs()) << "a failed call wrote";
            return status;
        };
        BRUTAL(call(), {});
        ASSERT_OK(want.run(context));
        ASSERT_TRUE(want.memory_of_outputs() == c.memory_of_outputs()) << "a failure changed a later result";
    }
}

// Plans and workspaces of a context stay; what END frees is made for each call.
TEST_P(Refusals, ASecondCallNeedsNoMemory) {
    for (uint64_t seed = 0; seed < rounds(8u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Wish wish = random_wish(seed);
        wish.scale = 5, wish.plain_sizes = true, wish.extras = seed % 2 == 1 && schema.end == nullptr;
        Case c(op, wish);
        ASSERT_OK(c.run(context));
        tartan_i_memory_fail_at(0);
        const tartan_status status = c.run(context);
        tartan_i_memory_fail_at(-1);
        ASSERT_OK(status);
    }
}

} // namespace
