// SPDX-License-Identifier: Apache-2.0
// Contexts on the dummy, which sees work that does not wait for other work.
#ifndef TARTAN_TESTS_ORDER_H
#define TARTAN_TESTS_ORDER_H

#include "placed.h"

namespace tartan_test {

class Order : public ::testing::Test {
  protected:
    DummyInstalled installed;
    std::mt19937_64 random{1};
    Layout layout = from_mask({16, 16, 4, 4, 1}, std::vector<uint8_t>(16, 1));
    Matrix host = random_matrix(layout, TARTAN_F32, 0, random);
    Dense dense = Dense(TARTAN_F32, {16, 16});

    void SetUp() override { dense.fill(random); }
    static tartan_status multiply(const Context &context, const Matrix &a, const Placed &b, Placed *c) {
        return tartan_spmm(context.get(), a.get(), nullptr, &b.array, 1, 0, nullptr, &c->array);
    }
    static int64_t waits() { return tartan_dummy.waits; }
    Placed copy_to(const Context &context) { return Placed(context.get(), dense); }
};

} // namespace tartan_test

#endif
