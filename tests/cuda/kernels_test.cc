// SPDX-License-Identifier: Apache-2.0
#include "support.h"

#include <set>

extern "C" {
#include "backend/operation.h"
#include "kernels.h"
}
#include "launches.h"

using namespace tartan_test;

namespace {

const tartan_cuda_chip kHopper = {9, 0, 132, 232448, nullptr};

struct Table {
    std::string operation;
    const tartan_cuda_kernels *kernels;
};
const Table kTables[] = {
#define TABLE(NAME, name) {#name, tartan_cuda_kernels_of(TARTAN_OP_##NAME)},
    TARTAN_I_OPERATIONS(TABLE)
#undef TABLE
};

// Rows of a test: the problem is a number, kernels refuse what is above their limit.
template <int kLimit> const char *refuses_above(const tartan_cuda_chip *, const void *problem) {
    return *(const int *)problem > kLimit ? "too much" : nullptr;
}
template <int kRate> double rated(const void *) {
    return kRate;
}
int chosen(std::initializer_list<tartan_cuda_kernel> rows, int problem) {
    const tartan_cuda_kernels table = {(int32_t)rows.size(), rows.begin(), nullptr};
    return tartan_cuda_choose(&table, &kHopper, &problem);
}
const tartan_cuda_kernel kAny = {"any", nullptr, rated<1>, nullptr, nullptr},
                         kSmall = {"small", refuses_above<10>, rated<5>, nullptr, nullptr},
                         kTiny = {"tiny", refuses_above<3>, rated<5>, nullptr, nullptr},
                         kUnrated = {"unrated", nullptr, nullptr, nullptr, nullptr};

} // namespace

TEST(CudaKernels, EveryRowLaunchesTheKernelOfItsName) {
    std::set<std::string> names;
    for (const Table &table : kTables) {
        ASSERT_NE(nullptr, table.kernels) << table.operation;
        EXPECT_GE(table.kernels->count, 1) << table.operation;
        for (int32_t i = 0; i < table.kernels->count; i++) {
            const tartan_cuda_kernel &row = table.kernels->rows[i];
            EXPECT_EQ(0u, std::string(row.name).find(table.operation + "_")) << row.name;
            EXPECT_TRUE(names.insert(row.name).second) << row.name << " is there twice";
            EXPECT_OK(row.launch("test", nullptr, nullptr));
            EXPECT_EQ(row.name, last_launch());
        }
    }
}

// Operations without a maker are their own problems; the others have one in the room.
TEST(CudaKernels, TheProblemIsTheOperationOrInTheRoom) {
    const tartan_context context = {};
    tartan_cuda_problem room;
    const void *problem = nullptr;
    tartan_op op = {};
    op.kind = TARTAN_OP_COMPARE;
    ASSERT_OK(tartan_cuda_problem_of(&tartan_i_host, &context, &op, &room, &problem));
    EXPECT_EQ(&op.compare, problem);
    EXPECT_FALSE(room.nothing);
    double number = 2;
    int64_t zero = 0;
    tartan_array x = {};
    EXPECT_OK(tartan_array_init(&number, TARTAN_F64, 0, nullptr, nullptr, &x));
    op.kind = TARTAN_OP_POINT1;
    op.point1.x = op.point1.y = &x;
    op.point1.row = 3;
    ASSERT_OK(tartan_cuda_problem_of(&tartan_i_host, &context, &op, &room, &problem));
    EXPECT_EQ(&room, problem);
    EXPECT_FALSE(room.nothing);
    EXPECT_EQ(3, room.points.row);
    EXPECT_OK(tartan_array_init(nullptr, TARTAN_F64, 1, &zero, nullptr, &x));
    ASSERT_OK(tartan_cuda_problem_of(&tartan_i_host, &context, &op, &room, &problem));
    EXPECT_TRUE(room.nothing);
}

// So every problem has a kernel.
TEST(CudaKernels, TheFirstRowOfEveryTableRefusesNothing) {
    for (const Table &table : kTables) {
        EXPECT_EQ(table.operation + "_plain", table.kernels->rows[0].name);
        EXPECT_EQ(nullptr, table.kernels->rows[0].refuses) << table.operation;
    }
}

TEST(CudaKernels, TheFastestThatCanIsChosen) {
    EXPECT_EQ(1, chosen({kAny, kSmall}, 7));
    EXPECT_EQ(0, chosen({kAny, kSmall}, 11));
    EXPECT_EQ(0, chosen({kSmall, kAny}, 7));
    EXPECT_EQ(2, chosen({kAny, kSmall, kTiny}, 2)); // the last of equals
    EXPECT_EQ(1, chosen({kAny, kSmall, kTiny}, 4));
    EXPECT_EQ(0, chosen({kUnrated}, 99)); // an unknown rate is 0
    EXPECT_EQ(0, chosen({kAny, kUnrated}, 99));
    EXPECT_EQ(-1, chosen({kSmall, kTiny}, 11));
    EXPECT_EQ(-1, chosen({}, 0));
}
