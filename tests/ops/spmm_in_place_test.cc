// SPDX-License-Identifier: Apache-2.0
// Products whose rows of B are read in place, and what workers prefetch for them.
#include "../backend/explained.h"
#include "spmm_support.h"

#include <map>

extern "C" {
#include "backend/cpu_spmm.h"
}

namespace {

using namespace tartan_test;

const int64_t kLine = 64;

struct Case {
    tartan_shape shape;
    double density;
    std::vector<int64_t> batch;
    int64_t n;
};

// Long lists of block rows with and without blocks, ragged, with batch entries and widths that do not fill vectors.
const std::vector<Case> &cases() {
    static const std::vector<Case> all = {{{700, 500, 8, 8, 1}, 0.02, {}, 104},
                                          {{300, 520, 32, 32, 1}, 0.1, {}, 200},
                                          {{500, 210, 5, 7, 1}, 0.03, {3}, 72},
                                          {{260, 300, 16, 16, 2}, 0.06, {2, 2}, 72}};
    return all;
}

TEST(SpmmInPlace, EqualsTheChainWithAnyNumberOfThreads) {
    Context contexts[] = {open_context(1), open_context(2), open_context(3)};
    for (const auto &set : feature_sets()) {
        uint64_t seed = 0; // every set has the same products
        for (const Case &c : cases())
            for (int32_t dtype : {TARTAN_F64, TARTAN_F32})
                for (Style style : {kRows, kOddLines}) {
                    SCOPED_TRACE(::testing::Message() << features_name(set) << " seed " << seed);
                    const WithFeatures with(set);
                    Spmm p = plain(c.shape, c.density, dtype, c.batch, c.n, seed, style,
                                   seed % 3 == 0 ? kTransposed : kAsIs);
                    p.alpha = seed % 4 == 1 ? 0.5 : 1;
                    p.gated = seed % 5 == 2;
                    Dense got = p.c;
                    EXPECT_HAS(explained([&] { return p.run(contexts[0].get(), &got); }), "read in place");
                    p.run_and_check(contexts[seed++ % 3].get());
                    if (HasFailure()) return;
                }
    }
}

// The lines of rows of a dense operand that a panel of all columns has.
void expect_rows(const std::map<uintptr_t, int> &asked, const tartan_i_dense &d, int64_t entries, int64_t n,
                 int64_t row, int64_t rows) {
    for (int64_t e = 0; e < entries; e++)
        for (int64_t i = row; i < row + rows; i++)
            for (int64_t j = 0; j < n; j++) {
                const char *at = tartan_i_dense_entry(&d, e) + (i * d.row + j * d.col) * d.bytes;
                ASSERT_TRUE(asked.count((uintptr_t)at / kLine)) << "entry " << e << " at " << i << ", " << j;
            }
}

// One worker that goes through all tasks, and takes all lines that it is given before each.
TEST(SpmmInPlace, LinesOfLaterTasksAreAskedFor) {
    const Context context = open_context(1);
    for (const Case &c : cases())
        for (Style style : {kRows, kOddLines}) {
            if (c.shape.heads > 1) continue;
            SCOPED_TRACE(::testing::Message() << c.shape.block_rows << " style " << style);
            const Spmm s = plain(c.shape, c.density, TARTAN_F64, c.batch, c.n, 1, style);
            Dense got = s.c;
            ASSERT_OK(s.run(context.get(), &got)); // makes the lists of columns
            tartan_op_spmm op = {};
            op.a = s.a.get(), op.b = &s.b.array, op.c = &s.c.array, op.alpha = 1;
            tartan_i_spmm p = tartan_i_spmm_plan(context.get(), &op, 1);
            ASSERT_TRUE(p.direct);
            ASSERT_EQ(1, p.team.panels);
            std::vector<tartan_i_sliver> slivers((size_t)(p.band * p.most));
            std::vector<int64_t> counts((size_t)p.band);
            p.slivers = slivers.data(), p.counts = counts.data(), p.panels = 1;
            tartan_i_spmm_cut_band(&p, 0);

            std::map<uintptr_t, int> asked;
            tartan_i_spmm_ahead ahead;
            tartan_i_spmm_ahead_start(&ahead, &p);
            for (int64_t task = 0; task < p.form.grid_out; task++) {
                tartan_i_spmm_ahead_at(&ahead, 0, task, p.form.grid_out);
                for (bool more = true; more;) {
                    tartan_i_spmm_ahead_fill(&ahead);
                    more = false;
                    for (auto &stream : ahead.streams)
                        for (; stream.count > 0; stream.count--, stream.at += stream.step, more = true)
                            asked[(uintptr_t)stream.at / kLine]++;
                }
                EXPECT_LT(ahead.task, p.form.grid_out);
                EXPECT_LT(ahead.task - task, TARTAN_I_SPMM_AHEAD_TASKS);
            }
            EXPECT_EQ(p.form.grid_out - 1, ahead.task);
            const int64_t entries = tartan_i_dense_entries(&p.form.b);
            for (int64_t task = 1; task < p.form.grid_out; task++) {
                int64_t row;
                const int64_t rows = tartan_i_cpu_form_out(&p.form, task, &row);
                expect_rows(asked, p.form.c, entries, c.n, row, rows);
                for (int64_t at = p.form.pointers[task]; at < p.form.pointers[task + 1]; at++) {
                    const int64_t in = tartan_i_cpu_form_in(&p.form, p.form.others[at], &row);
                    if (!p.alone)
                        expect_rows(asked, p.form.b, entries, c.n, row, in); // else strips ask for them
                    const auto *block = static_cast<const char *>(tartan_i_block_at(s.a.get(), at));
                    for (int64_t i = 0; i < p.block_bytes; i++)
                        ASSERT_TRUE(asked.count((uintptr_t)(block + i) / kLine));
                }
                if (HasFailure()) return;
            }
        }
}

// A worker whose tasks are elsewhere drops what it was given, and goes on behind the new one.
TEST(SpmmInPlace, PrefetchesFollowTheWorker) {
    const Context context = open_context(1);
    const Spmm s = plain({400, 400, 8, 8, 1}, 0.02, TARTAN_F32, {}, 64, 1);
    Dense got = s.c;
    ASSERT_OK(s.run(context.get(), &got)); // makes the lists of columns
    tartan_op_spmm op = {};
    op.a = s.a.get(), op.b = &s.b.array, op.c = &s.c.array, op.alpha = 1;
    tartan_i_spmm p = tartan_i_spmm_plan(context.get(), &op, 1);
    std::vector<tartan_i_sliver> slivers((size_t)(p.band * p.most));
    std::vector<int64_t> counts((size_t)p.band);
    p.slivers = slivers.data(), p.counts = counts.data(), p.panels = 1;
    tartan_i_spmm_cut_band(&p, 0);
    tartan_i_spmm_ahead ahead;
    tartan_i_spmm_ahead_start(&ahead, &p);
    tartan_i_spmm_ahead_at(&ahead, 0, 0, 4);
    for (int i = 0; i < 1000; i++) {
        for (auto &stream : ahead.streams) stream.count = 0;
        tartan_i_spmm_ahead_fill(&ahead);
    }
    EXPECT_EQ(3, ahead.task); // the last one before the end
    for (auto &stream : ahead.streams) EXPECT_EQ(0, stream.count);
    tartan_i_spmm_ahead_at(&ahead, 0, 20, 28);
    tartan_i_spmm_ahead_fill(&ahead);
    EXPECT_EQ(21, ahead.task);
    int64_t row;
    tartan_i_cpu_form_out(&p.form, 21, &row);
    const char *at = tartan_i_dense_entry(&p.form.c, 0) + row * p.form.c.row * p.form.c.bytes;
    EXPECT_EQ((uintptr_t)at / kLine, (uintptr_t)ahead.streams[0].at / kLine);
    tartan_i_spmm_ahead_at(&ahead, 1, 2, 4); // another range of columns has tasks of its own
    EXPECT_EQ(2, ahead.task);
    for (auto &stream : ahead.streams) EXPECT_EQ(0, stream.count);
}

} // namespace
