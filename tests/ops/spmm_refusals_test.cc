// SPDX-License-Identifier: Apache-2.0
// The shapes that tartan_spmm refuses; tests/ops/schema_test.cc has all its other refusals.
#include "spmm_support.h"

namespace {

using namespace tartan_test;

class SpmmRefusals : public ::testing::Test {
  protected:
    Context context = open_context(1);
    Spmm p = plain({8, 6, 2, 3, 1}, 1, TARTAN_F32, {}, 5, 1);
    Dense before = p.c;
    tartan_status call() {
        return tartan_spmm(context.get(), p.a.get(), p.gated ? &p.gates.array : nullptr, &p.b.array, p.alpha,
                           p.beta, spmm_options(p.side, p.op), &p.c.array);
    }
    void TearDown() override { EXPECT_EQ(before.memory(), p.c.memory()) << "a refused call wrote"; }
};

TEST_F(SpmmRefusals, Shapes) {
    p.b.array.shape[0] = 5;
    EXPECT_FAILS(SHAPE,
                 "tartan_spmm: b has shape [5, 5], expected [6, 5], which is [batch..., columns of op(a), n]",
                 call());
    p.b.array.shape[0] = 6, p.c.array.shape[0] = 7;
    EXPECT_FAILS(SHAPE, "c has shape [7, 5], expected [8, 5], which is [batch..., rows of op(a), n]", call());
    p.c.array.shape[0] = 8, p.c.array.shape[1] = 4;
    EXPECT_FAILS(SHAPE, "c has shape [8, 4], expected [8, 5]", call());
    p.c.array.shape[1] = 5, p.side = kRight;
    EXPECT_FAILS(SHAPE, "b has shape [6, 5], expected [6, 8]", call());
    p.op = kTransposed;
    EXPECT_FAILS(SHAPE, "b has shape [6, 5], expected [6, 6]", call());
    p.side = kLeft;
    EXPECT_FAILS(SHAPE, "b has shape [6, 5], expected [8, 5]", call());
    p.op = kAsIs, p.b.array.ndim = 1;
    EXPECT_FAILS(SHAPE, "b has shape [6], expected at least 2 dimensions", call());
    p.b.array.ndim = 3, p.b.array.shape[0] = 1, p.b.array.shape[1] = 6, p.b.array.shape[2] = 5;
    p.b.array.strides[0] = 30, p.b.array.strides[1] = 5, p.b.array.strides[2] = 1;
    EXPECT_FAILS(SHAPE, "c has shape [8, 5], expected [1, 8, 5]", call());
}

TEST_F(SpmmRefusals, Heads) {
    Spmm h = plain({8, 6, 2, 3, 3}, 1, TARTAN_F32, {3}, 5, 1);
    h.b.array.shape[0] = 2;
    EXPECT_FAILS(SHAPE, "b has shape [2, 6, 5], expected [3, 6, 5]", h.run(context.get(), &h.c));
    h.b.array.ndim = 2, h.b.array.shape[0] = 6, h.b.array.shape[1] = 5;
    EXPECT_FAILS(SHAPE, "b has shape [6, 5], expected at least 3 dimensions (heads of the layout)",
                 h.run(context.get(), &h.c));
}

} // namespace
