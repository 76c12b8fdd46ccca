// SPDX-License-Identifier: Apache-2.0
// Steps of sparsifiers with weights and moments on every backend: the layouts of the CPU, and values moved bit for bit.
#include "../ops/sparsifier_support.h"
#include "matrices.h"

namespace {

using namespace tartan_test;

class SparsifierOn : public OnMatrices {};
INSTANTIATE_TEST_SUITE_P(Each, SparsifierOn, ::testing::ValuesIn(backends()),
                         [](const auto &info) { return info.param; });

TEST_P(SparsifierOn, StepsAreThoseOfTheCpu) {
    const tartan_shape shape = {72, 96, 8, 16, 1}, thin = {72, 6, 8, 1, 1};
    for (int32_t dtype : {TARTAN_F64, TARTAN_F32, TARTAN_BF16}) {
        SCOPED_TRACE(tartan_dtype_name(dtype));
        const Layout l = random_layout(shape, 1, 1), k = random_layout(thin, 1, 1);
        const char *options = "density=0.3 swap=0.2 growth=random end=6";
        const Sparsifier here = sparsifier_of(options, {l.get()}), there = sparsifier_of(options, {l.get()});
        tartan_matrix *ours[3], *theirs[3];
        for (int i = 0; i < 3; i++) {
            Matrix m = normal_on(i == 2 ? k.get() : l.get(), i + 1, dtype);
            theirs[i] = placed(context.get(), m).release();
            ours[i] = m.release();
        }
        const std::string where = tartan_matrix_device(theirs[0]);
        for (int64_t step = 1; step <= 6; step++) {
            ASSERT_OK(tartan_sparsifier_step(cpu(), here.get(), ours, 3));
            ASSERT_OK(tartan_sparsifier_step(context.get(), there.get(), theirs, 3));
        }
        EXPECT_EQ(tartan_layout_blocks(layout_of(here.get()).get()), 16);
        for (int i = 0; i < 3; i++) {
            EXPECT_EQ(tartan_matrix_device(theirs[i]), where);
            EXPECT_TRUE(tartan_layout_equal(layout_of(ours[i]).get(), layout_of(theirs[i]).get()));
            EXPECT_EQ(bits_of(ours[i]), bits_of(theirs[i]));
            tartan_matrix_free(ours[i]);
            tartan_matrix_free(theirs[i]);
        }
    }
}

// A matrix in other memory than that of the context is refused, and nothing has changed.
TEST_P(SparsifierOn, MemoryElsewhereIsRefused) {
    if (on_host()) return;
    const Layout l = random_layout({32, 32, 8, 8, 1}, 1, 1);
    const Sparsifier s = sparsifier_of("density=0.5", {l.get()});
    const Matrix host = normal_on(l.get(), 1), far = placed(context.get(), host);
    tartan_matrix *parts[2] = {far.get(), host.get()};
    EXPECT_FAILS(UNSUPPORTED, "matrix is", tartan_sparsifier_step(context.get(), s.get(), parts, 2));
    EXPECT_EQ(parts[0], far.get());
    EXPECT_EQ(tartan_sparsifier_steps(s.get()), 0);
}

} // namespace
