// SPDX-License-Identifier: Apache-2.0
// Where operations of the schema write: all elements of their outputs and nothing else, in place where they may, and never over other
// operands.
#include "../support/schema_rules.h"

namespace {

using namespace tartan_test;

class Outputs : public ForOperation {
  protected:
    tartan_array view(Case &c, int i) {
        return c.is_array(i) ? c.array(i) : tartan_i_matrix_view(c.matrix(i));
    }
    // A matrix like that of argument i, or with blocks in the other order, whose values are elsewhere.
    Matrix wrapped(Case &c, int i, void *values, bool other_order = false) {
        tartan_array array = view(c, i);
        const tartan_shape &s = c.matrix(i)->layout->shape;
        const bool by_rows = (c.matrix(i)->block_order == TARTAN_ROW_MAJOR) != other_order;
        array.data = values;
        array.strides[1] = by_rows ? s.block_cols : 1, array.strides[2] = by_rows ? 1 : s.block_rows;
        tartan_matrix *raw = nullptr;
        EXPECT_OK(tartan_matrix_wrap(c.matrix(i)->layout, &array, nullptr, nullptr, &raw));
        return Matrix(raw);
    }
};
FOR_EACH_OPERATION(Outputs);

bool same_bits(const std::vector<double> &a, const std::vector<double> &b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0);
}

// Results of arithmetic on matrices have zeros as padding.
void clear_padding(Case &c, int i) {
    if (std::string(c.schema.name).rfind("weight_normalize", 0) != 0 || c.is_array(i)) return;
    for (int64_t id = 0; id < c.matrix(i)->layout->blocks; id++)
        tartan_i_block_clear_padding(c.matrix(i), id);
}

// Every element is written whatever it was, and nothing between and beyond.
void expect_whole(tartan_context *context, Case &c, const Wish &wish) {
    std::vector<std::vector<double>> first((size_t)c.count());
    for (const double mark : {-77.0, 5.5}) {
        Case again(c.op, wish);
        for (int i = 0; i < again.count(); i++)
            if (again.has_values(i) && again.is_output(i) && !again.has_old_values(i)) again.fill(i, mark);
        ASSERT_OK(again.run(context));
        for (int i = 0; i < again.count(); i++) {
            if (!again.has_values(i)) continue;
            SCOPED_TRACE(again.rule(i).name);
            if (!again.is_output(i)) {
                ASSERT_EQ(c.memory(i), again.memory(i)) << "an input was written";
                continue;
            }
            const std::vector<double> values = again.values(i);
            for (const double value : values) ASSERT_FALSE(std::isnan(value));
            again.fill(i, mark), c.fill(i, mark);
            clear_padding(c, i);
            ASSERT_EQ(c.memory(i), again.memory(i)) << "a gap or padding was written";
            if (mark == 5.5)
                ASSERT_TRUE(same_bits(first[(size_t)i], values)) << "an element was not written";
            else
                first[(size_t)i] = values;
        }
    }
}

TEST_P(Outputs, AreWrittenWhole) {
    for (uint64_t seed = 0; seed < rounds(24u); seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        Wish wish = random_wish(seed);
        wish.extras = seed % 3 == 0;
        Case c(op, wish);
        expect_whole(context, c, wish);
        if (HasFailure()) return;
    }
}

TEST_P(Outputs, AreDefinedForEmptySizes) {
    for (int empty = 0; empty < empties(schema); empty++)
        for (uint64_t seed = 0; seed < 4; seed++)
            for (const bool random : {false, true}) {
                SCOPED_TRACE(::testing::Message() << "empty " << empty << " seed " << seed << " " << random);
                Wish wish = random_wish(seed);
                wish.empty = empty, wish.random = random;
                Case c(op, wish);
                expect_whole(context, c, wish);
                if (HasFailure()) return;
            }
}

// Where an output may have the memory of an input, the result has the same bits as elsewhere.
TEST_P(Outputs, InPlace) {
    for (uint64_t seed = 0; seed < rounds(8u); seed++) {
        Wish wish;
        wish.seed = seed, wish.dtype = kDtypes[seed % 4], wish.one_shape = true,
        wish.scale = 1 + (int64_t)seed % 3;
        for (int i = 0; i < schema.narguments; i++)
            for (int j = 0; j < schema.narguments; j++) {
                if (!(schema.arguments[i].may_be >> j & 1)) continue;
                SCOPED_TRACE(::testing::Message()
                             << schema.arguments[i].name << " in " << schema.arguments[j].name);
                Case apart(op, wish), in_place(op, wish);
                if (!apart.has_values(i) || !apart.has_values(j) || apart.dtype_of(i) != apart.dtype_of(j))
                    continue;
                ASSERT_OK(apart.run(context));
                // An array by its descriptor; a matrix by itself and by another matrix around its values.
                Matrix twin;
                tartan_array copy = view(in_place, j);
                if (in_place.is_array(i)) {
                    in_place.given[(size_t)i] = &copy;
                } else if (seed % 2 == 0) {
                    in_place.given[(size_t)i] = in_place.matrix(j);
                } else {
                    twin = wrapped(in_place, j, copy.data);
                    in_place.given[(size_t)i] = twin.get();
                }
                ASSERT_OK(in_place.run(context));
                ASSERT_TRUE(same_bits(apart.values(i), in_place.values(j)));
                for (int other = 0; other < schema.narguments; other++)
                    ASSERT_TRUE(other == i || other == j || !apart.has_values(other) ||
                                same_bits(apart.values(other), in_place.values(other)))
                        << schema.arguments[other].name;
            }
    }
}

// Any other overlap is refused: the same memory where it may not be, and memory that begins within the other's.
TEST_P(Outputs, OverlappingOthers) {
    for (const bool shifted : {false, true})
        for (int i = 0; i < schema.narguments; i++)
            for (int j = 0; j < schema.narguments; j++) {
                if (i == j || schema.arguments[i].use == TARTAN_I_IN) continue;
                if (schema.arguments[j].use != TARTAN_I_IN && j > i)
                    continue; // the text names the later one first
                Wish wish;
                wish.one_shape = true;
                Case c(op, wish);
                if (!c.has_values(i) || !c.has_values(j)) continue;
                SCOPED_TRACE(::testing::Message()
                             << schema.arguments[i].name << " over " << schema.arguments[j].name << shifted);
                tartan_array over = view(c, i);
                const tartan_array under = view(c, j);
                // Room for both, in which the output begins at the other operand.
                std::vector<double> room(
                    (size_t)(2 + tartan_i_array_elements(&over) + tartan_i_array_elements(&under)));
                const int64_t bytes = tartan_i_array_elements(&under) * tartan_dtype_bytes(under.dtype);
                if (shifted && bytes <= tartan_dtype_bytes(over.dtype)) continue; // then they are apart
                std::memcpy(room.data(), under.data, (size_t)bytes);
                tartan_array moved = under;
                moved.data = room.data();
                over.data = (char *)room.data() + (shifted ? tartan_dtype_bytes(over.dtype) : 0);
                const bool fits = !shifted && (schema.arguments[i].may_be >> j & 1) &&
                                  over.dtype == under.dtype && over.ndim == under.ndim &&
                                  std::equal(over.shape, over.shape + over.ndim, under.shape);
                Matrix matrices[2];
                const auto put = [&](int at, tartan_array &array, Matrix &matrix) {
                    if (c.is_array(at)) {
                        c.given[(size_t)at] = &array;
                        return;
                    }
                    matrix = wrapped(c, at, array.data);
                    c.given[(size_t)at] = matrix.get();
                };
                put(i, over, matrices[0]);
                put(j, moved, matrices[1]);
                const std::vector<double> before = room;
                if (fits) {
                    ASSERT_OK(c.run(context));
                    continue;
                }
                ASSERT_EQ(TARTAN_ERR_ARGUMENT, c.run(context)) << tartan_last_error();
                ASSERT_EQ(std::string(schema.function) + ": " + schema.arguments[i].name + " overlaps " +
                              schema.arguments[j].name + ", expected separate memory",
                          tartan_last_error());
                ASSERT_TRUE(same_bits(before, room)) << "a refused call wrote";
            }
}

// The same memory with the axes exchanged is another operand.
TEST_P(Outputs, OverlappingInAnotherOrder) {
    for (int i = 0; i < schema.narguments; i++)
        for (int j = 0; j < schema.narguments; j++) {
            if (!(schema.arguments[i].may_be >> j & 1)) continue;
            Wish wish;
            wish.one_shape = true;
            Case c(op, wish);
            if (!c.has_values(i) || !c.has_values(j)) continue;
            SCOPED_TRACE(::testing::Message()
                         << schema.arguments[i].name << " over " << schema.arguments[j].name);
            tartan_array over = view(c, j);
            Matrix other;
            if (c.is_matrix(i)) {
                other = wrapped(c, j, over.data, true);
                c.given[(size_t)i] = other.get();
            } else {
                ASSERT_GE(over.ndim, 2);
                for (int64_t d = 0, step = 1; d < over.ndim; step *= over.shape[d++]) over.strides[d] = step;
                c.given[(size_t)i] = &over;
            }
            ASSERT_EQ(TARTAN_ERR_ARGUMENT, c.run(context)) << tartan_last_error();
            ASSERT_NE(std::string::npos, std::string(tartan_last_error()).find(" overlaps "))
                << tartan_last_error();
        }
}

} // namespace
