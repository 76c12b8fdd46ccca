// SPDX-License-Identifier: Apache-2.0
// Sweeps: every element is visited once, and units are chosen where all arrays allow them.
#include "../ops/products.h"

#include <map>

extern "C" {
#include "sweep.h"
}

using namespace tartan_test;

namespace {

// An element of each array.
using Places = std::vector<int64_t>;

// What kernels do: a number as a multiplication and a shift.
int64_t divided(int64_t number, tartan_cuda_divider by) {
    if (by.factor == 0) return number;
    return (int64_t)((((uint64_t)(uint32_t)number * by.factor) >> 32) >> by.shift);
}

// Adds the offsets of element `number` of some axes, in bytes from the start of memory.
void add_offsets(const tartan_cuda_sweep &s, int which, int64_t number, Places &at) {
    const tartan_cuda_axes &axes = s.axes[which];
    for (int32_t d = 0; d < axes.ndim; d++) {
        const int64_t rest = divided(number, axes.by[d]), here = number - rest * axes.length[d];
        ASSERT_EQ(number / axes.length[d], rest);
        for (int32_t i = 0; i < s.count; i++) at[(size_t)i] += here * s.array[i].step[which][d];
        number = rest;
    }
}

Places start_of(const tartan_cuda_sweep &s) {
    Places at;
    for (int32_t i = 0; i < s.count; i++) at.push_back(0);
    return at;
}

// All elements: for each, where it is in the arrays, as addresses.
std::map<Places, int> visited(const tartan_cuda_sweep &s) {
    std::map<Places, int> found;
    const auto visit = [&](const tartan_cuda_sweep &sweep, const Places &at, int64_t count) {
        for (int64_t n = 0; n < count; n++) {
            Places address;
            for (int32_t i = 0; i < sweep.count; i++) {
                const tartan_cuda_swept &a = sweep.array[i];
                const int64_t next = n * (sweep.unit > 1 ? a.next : 0);
                address.push_back(a.data == nullptr
                                      ? 0
                                      : (int64_t)(uintptr_t)a.data +
                                            (at[(size_t)i] + next) * tartan_dtype_bytes(a.dtype));
            }
            found[address]++;
        }
    };
    for (int64_t kept = 0; kept < s.axes[TARTAN_CUDA_KEPT].elements; kept++)
        for (int64_t summed = 0; summed < s.axes[TARTAN_CUDA_SUMMED].elements; summed++) {
            Places at = start_of(s);
            add_offsets(s, TARTAN_CUDA_KEPT, kept, at);
            add_offsets(s, TARTAN_CUDA_SUMMED, summed, at);
            visit(s, at, s.unit);
        }
    if (s.rest == 0) return found;
    const tartan_cuda_sweep rest = tartan_cuda_sweep_rest(&s);
    EXPECT_EQ(1, rest.unit);
    for (int64_t n = 0; n < rest.axes[TARTAN_CUDA_KEPT].elements; n++) {
        Places at = start_of(rest);
        add_offsets(rest, TARTAN_CUDA_KEPT, n, at);
        visit(rest, at, 1);
    }
    return found;
}

// The same from the arrays themselves.
std::map<Places, int> expected(const tartan_cuda_sweeping &of) {
    std::map<Places, int> found;
    int64_t all = 1;
    for (int32_t d = 0; d < of.ndim; d++) all *= of.shape[d];
    for (int64_t n = 0; n < all; n++) {
        Places address;
        for (int32_t i = 0; i < of.count; i++) {
            const tartan_array *a = of.array[i];
            int64_t rest = n, at = 0;
            for (int32_t d = of.ndim - 1; d >= 0; rest /= of.shape[d], d--) {
                const int32_t own = a == nullptr ? -1 : d - (of.ndim - a->ndim);
                if (own >= 0 && a->shape[own] != 1) at += rest % of.shape[d] * a->strides[own];
            }
            address.push_back(a == nullptr ? 0
                                           : (int64_t)(uintptr_t)a->data + at * tartan_dtype_bytes(a->dtype));
        }
        found[address]++;
    }
    return found;
}

tartan_array array_of(int32_t dtype, std::vector<int64_t> shape, std::vector<int64_t> strides,
                      uintptr_t address = 4096) {
    tartan_array a = {};
    a.data = (void *)address;
    a.dtype = dtype;
    a.ndim = (int32_t)shape.size();
    for (size_t d = 0; d < shape.size(); d++) a.shape[d] = shape[d], a.strides[d] = strides[d];
    return a;
}

tartan_cuda_sweeping over(const tartan_array &like, std::vector<const tartan_array *> arrays,
                          uint32_t summed = 0) {
    tartan_cuda_sweeping of = {};
    of.ndim = like.ndim;
    std::copy(like.shape, like.shape + 8, of.shape);
    of.summed = summed;
    of.count = (int32_t)arrays.size();
    of.first = of.count - 1;
    for (size_t i = 0; i < arrays.size(); i++) of.array[i] = arrays[i];
    return of;
}

} // namespace

TEST(CudaSweep, DividersDivide) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 200000; i++) {
        const int64_t divisor = 1 + (int64_t)(random() >> (33 + random() % 31)) % INT32_MAX;
        const int64_t number = (int64_t)(random() >> (33 + random() % 31));
        const tartan_cuda_divider by = tartan_cuda_divider_of(divisor);
        for (int64_t n :
             {number, number / divisor * divisor, INT32_MAX / divisor * divisor - 1, (int64_t)INT32_MAX})
            ASSERT_EQ(n < 0 ? 0 : n / divisor, n < 0 ? 0 : divided(n, by)) << n << " by " << divisor;
    }
}

TEST(CudaSweep, VisitsEveryElementOnce) {
    std::mt19937_64 random(6);
    const int32_t dtypes[] = {TARTAN_F64, TARTAN_F32, TARTAN_F16, TARTAN_BF16};
    for (int round = 0; round < rounds(2000); round++) {
        SCOPED_TRACE(round);
        std::vector<int64_t> shape;
        for (size_t d = 0; d < random() % 6; d++)
            shape.push_back(pick<int64_t>(random, {0, 1, 2, 3, 4, 8, 16}));
        if (shape.size() > 4)
            for (int64_t &length : shape) length = std::min<int64_t>(length, 3);
        const int32_t dtype = dtypes[random() % 4];
        std::vector<Dense> all;
        for (int i = 0; i < 4; i++) {
            std::vector<int64_t> own = shape;
            if (i < 3) {
                for (int64_t &length : own)
                    if (random() % 4 == 0) length = 1;
                own.erase(own.begin(),
                          own.begin() + (std::ptrdiff_t)(random() % (own.size() + 1) * (random() % 3 == 0)));
            }
            const int32_t of = dtype == TARTAN_F64 ? TARTAN_F64 : dtypes[1 + random() % 3];
            all.emplace_back(of, own, (Style)below(random, i < 3 ? kStyles : kRepeated));
        }
        const Dense &last = all.back();
        tartan_cuda_sweeping of = over(
            last.array, {&all[0].array, random() % 3 ? &all[1].array : nullptr, &all[2].array, &last.array},
            random() % 2 ? (uint32_t)random() : 0);
        of.keep_direction = random() % 4 == 0;
        tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
        const auto wanted = expected(of);
        ASSERT_EQ(wanted, visited(s));
        tartan_cuda_sweep_choose_unit(&s, s.axes[TARTAN_CUDA_SUMMED].ndim == 0 ? 3 : 4,
                                      (tartan_cuda_unit_rule)(random() % 3));
        ASSERT_EQ(wanted, visited(s));
        ASSERT_EQ(wanted, visited(tartan_cuda_sweep_one_by_one(&s)));
        if (s.unit == 1) continue;
        for (int32_t i = 0; i < s.count; i++) { // units are aligned
            const tartan_cuda_swept &a = s.array[i];
            if (a.data == nullptr || a.next == 0 || a.gathered) continue;
            ASSERT_EQ(0u, (uintptr_t)a.data %
                              (uintptr_t)std::min<int64_t>(s.unit * tartan_dtype_bytes(a.dtype), 16));
            for (auto &steps : a.step)
                for (int64_t step : steps) ASSERT_EQ(0, step % s.unit);
        }
    }
}

TEST(CudaSweep, MergesWhatIsContiguous) {
    const tartan_array x = array_of(TARTAN_F32, {4, 6, 8}, {48, 8, 1}),
                       turned = array_of(TARTAN_F32, {4, 6, 8}, {1, 4, 24});
    tartan_cuda_sweeping of = over(x, {&x, &x});
    tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
    EXPECT_EQ(1, s.axes[TARTAN_CUDA_KEPT].ndim);
    EXPECT_EQ(192, s.axes[TARTAN_CUDA_KEPT].length[0]);
    of = over(x, {&turned, &turned}); // in any order of dimensions
    s = tartan_cuda_sweep_of(&of);
    EXPECT_EQ(1, s.axes[TARTAN_CUDA_KEPT].ndim);
    of = over(x, {&turned, &x}); // the last array decides which changes fastest
    s = tartan_cuda_sweep_of(&of);
    EXPECT_EQ(3, s.axes[TARTAN_CUDA_KEPT].ndim);
    EXPECT_EQ(1, s.array[1].step[TARTAN_CUDA_KEPT][0]);
    EXPECT_EQ(24, s.array[0].step[TARTAN_CUDA_KEPT][0]);
    const tartan_array back = array_of(TARTAN_F32, {4, 6, 8}, {-48, -8, -1}, 4096 + 191 * 4);
    of = over(x, {&back, &back}); // turned round
    s = tartan_cuda_sweep_of(&of);
    EXPECT_EQ(1, s.axes[TARTAN_CUDA_KEPT].ndim);
    EXPECT_EQ((void *)4096, s.array[0].data);
    tartan_cuda_sweep_choose_unit(&s, 1, TARTAN_CUDA_UNITS_ALIKE);
    EXPECT_EQ(4, s.unit);
}

TEST(CudaSweep, ChoosesUnitsThatAllArraysAllow) {
    tartan_cuda_unit_rule rule = TARTAN_CUDA_UNITS_ALIKE;
    const auto unit = [&](const tartan_array &like, std::vector<const tartan_array *> arrays,
                          uint32_t summed = 0) {
        tartan_cuda_sweeping of = over(like, arrays, summed);
        of.first = summed == 0 ? of.count - 1 : 0;
        tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
        tartan_cuda_sweep_choose_unit(&s, of.count - (s.inner == TARTAN_CUDA_KEPT), rule);
        return s.unit;
    };
    const tartan_array half = array_of(TARTAN_BF16, {6, 24}, {24, 1}),
                       single = array_of(TARTAN_F32, {6, 24}, {24, 1}),
                       twice = array_of(TARTAN_F64, {6, 24}, {24, 1}),
                       odd = array_of(TARTAN_BF16, {6, 24}, {25, 1}),
                       shifted = array_of(TARTAN_BF16, {6, 24}, {24, 1}, 4098),
                       some = array_of(TARTAN_BF16, {6, 24}, {28, 1}, 4096 + 8),
                       row = array_of(TARTAN_BF16, {24}, {1}), column = array_of(TARTAN_BF16, {6, 1}, {1, 1}),
                       sums = array_of(TARTAN_F32, {24}, {1}), number = array_of(TARTAN_F32, {6, 1}, {1, 1});
    EXPECT_EQ(8, unit(half, {&half, &half}));
    EXPECT_EQ(4, unit(half, {&half, &single}));
    EXPECT_EQ(4, unit(half, {&single, &single}));
    EXPECT_EQ(2, unit(half, {&twice, &twice}));
    EXPECT_EQ(1, unit(half, {&half, &odd}));
    EXPECT_EQ(1, unit(half, {&shifted, &half}));
    EXPECT_EQ(4, unit(half, {&half, &some})); // lines of 56 bytes, by 8
    EXPECT_EQ(8, unit(half, {&half, &row, &half}));
    EXPECT_EQ(8, unit(half, {&half, &column, &half})); // the same element 24 times
    EXPECT_EQ(1, unit(half, {&half, &column}));        // but not as an output
    EXPECT_EQ(4, unit(half, {&half, &sums}, 1));       // sums of columns
    EXPECT_EQ(8, unit(half, {&half, &number}, 2));     // of rows
    rule = TARTAN_CUDA_UNITS_LINES;
    EXPECT_EQ(8, unit(half, {&half, &sums, &half}));
    EXPECT_EQ(1, unit(half, {&odd, &half}));
    rule = TARTAN_CUDA_UNITS_GATHER;
    EXPECT_EQ(8, unit(half, {&odd, &half}));  // one by one
    EXPECT_EQ(1, unit(half, {&half, &odd}));  // but not an output
    EXPECT_EQ(4, unit(half, {&some, &half})); // rather by 8 bytes
    EXPECT_EQ(8, unit(half, {&half, &sums, &half}));
    const tartan_array spread = array_of(TARTAN_F32, {24}, {3});
    EXPECT_EQ(8, unit(half, {&half, &spread, &half}));
    const tartan_array flat = array_of(TARTAN_F16, {1003}, {1});
    tartan_cuda_sweeping of = over(flat, {&flat, &flat});
    tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
    tartan_cuda_sweep_choose_unit(&s, 1, TARTAN_CUDA_UNITS_ALIKE);
    EXPECT_EQ(8, s.unit);
    EXPECT_EQ(3, s.rest);
}

// Tiles visit every element once. They are made where an array is turned, if its dimension has a divisor.
TEST(CudaSweep, TilesOfTurnedArrays) {
    const struct {
        int64_t rows, cols;
        int32_t dtype;
        bool tiled;
    } cases[] = {{128, 512, TARTAN_F32, true}, {256, 512, TARTAN_BF16, true}, {128, 512, TARTAN_F64, true},
                 {45, 1021, TARTAN_F32, true}, {1021, 64, TARTAN_F32, false}, {64, 32, TARTAN_F32, false}};
    for (const auto &one : cases)
        for (const bool turned : {true, false})
            for (const int32_t outer : {1, 3}) {
                const int64_t each = one.rows * one.cols;
                const std::vector<int64_t> shape = {outer, one.rows, one.cols};
                const tartan_array y = array_of(one.dtype, shape, {each, one.cols, 1}),
                                   b = array_of(one.dtype, {one.cols}, {1}, 1 << 20),
                                   a = array_of(one.dtype, shape,
                                                {each, turned ? 1 : one.cols, turned ? one.rows : 1},
                                                1 << 28);
                const tartan_cuda_sweeping of = over(y, {&a, &b, &y});
                for (const auto rule : {TARTAN_CUDA_UNITS_GATHER, TARTAN_CUDA_UNITS_LINES}) {
                    tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
                    tartan_cuda_sweep_choose_unit(&s, 2, rule);
                    const int32_t before = s.axes[TARTAN_CUDA_KEPT].ndim, unit = s.unit;
                    const int64_t elements = s.axes[TARTAN_CUDA_KEPT].elements;
                    tartan_cuda_sweep_tile(&s);
                    SCOPED_TRACE(::testing::Message() << one.rows << " x " << one.cols << ", unit " << unit);
                    const bool is = turned && one.tiled && elements >= 1 << 14;
                    EXPECT_EQ(before + (is ? 2 : 0), s.axes[TARTAN_CUDA_KEPT].ndim);
                    EXPECT_EQ(elements, s.axes[TARTAN_CUDA_KEPT].elements);
                    if (is) {
                        EXPECT_EQ(1, s.array[0].step[TARTAN_CUDA_KEPT][1])
                            << "the second dimension of a tile";
                    }
                    if (is && one.dtype == TARTAN_F32 && outer == 1) {
                        EXPECT_EQ(expected(of), visited(s));
                    }
                }
            }
}

TEST(CudaSweep, FlatSweepsBecomeLines) {
    for (const auto &[n, lines] : std::map<int64_t, int64_t>{{4 * 128 * 5, 5},
                                                             {4 * 4096 * 3, 3},
                                                             {4 * 8192, 2},
                                                             {4 * 32 * 7, 0},
                                                             {4 * 4096, 0},
                                                             {4 * 128 * 5 + 1, 0}}) {
        const tartan_array y = array_of(TARTAN_F32, {n}, {1}), b = array_of(TARTAN_F32, {1}, {0}, 8192);
        const tartan_cuda_sweeping of = over(y, {&y, &b, &y});
        tartan_cuda_sweep s = tartan_cuda_sweep_of(&of);
        tartan_cuda_sweep_choose_unit(&s, 2, TARTAN_CUDA_UNITS_LINES);
        tartan_cuda_sweep_fold(&s);
        SCOPED_TRACE(n);
        EXPECT_EQ(lines == 0 ? 1 : 2, s.axes[TARTAN_CUDA_KEPT].ndim);
        if (lines > 0) {
            EXPECT_EQ(lines, s.axes[TARTAN_CUDA_KEPT].length[1]);
        }
        EXPECT_EQ(expected(of), visited(s));
    }
}
