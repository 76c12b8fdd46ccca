// SPDX-License-Identifier: Apache-2.0
// What is done for each channel: how arrays are walked, and the tables of weight normalisation.
#include "../ops/channel_linear_support.h"
#include "../ops/conv_normalize_support.h"
#include "tune_support.h"

extern "C" {
#include "conv_sets.h"
}

using namespace tartan_test;

namespace {

tartan_cuda_walk walk_of(const Linear &p) {
    const tartan_context context = {};
    tartan_op_channel_linear op = {};
    op.function = "test";
    op.x = &p.x.array, op.y = &p.y.array;
    tartan_cuda_channel_linear out;
    EXPECT_OK(tartan_cuda_channel_linear_of(&tartan_i_host, &context, &op, &out));
    EXPECT_EQ(p.x.elements() == 0, out.nothing);
    return out.walk;
}

Linear images(int64_t n, int64_t channels, std::vector<int64_t> size, int style, int32_t dtype = TARTAN_F32) {
    Linear p;
    p.x = p.y = make_image(dtype, n, channels, size, style);
    p.x.array.data = p.y.array.data = (void *)4096; // is not read
    return p;
}

// The place of position `number` in an array of the walk.
int64_t place(const tartan_cuda_walk &w, int array, int64_t number) {
    int64_t at = 0;
    for (int32_t d = w.ndim - 1; d >= 0; d--) {
        at += number % w.length[d] * w.array[array].step[d];
        number /= w.length[d];
    }
    return at;
}

} // namespace

TEST(CudaChannels, WalksVisitEveryElement) {
    for (uint64_t seed = 0; seed < 100; seed++) {
        const Linear p = make_linear(seed, TARTAN_F32);
        const tartan_cuda_walk w = walk_of(p);
        ASSERT_EQ(p.channels(), w.channels);
        ASSERT_EQ(p.x.array.shape[0] * p.positions(), w.positions);
        for (int array = 0; array < 2; array++) {
            const tartan_array &a = array == 0 ? p.x.array : p.y.array;
            for (int64_t number = 0; number < w.positions; number++) {
                int64_t at = 0, rest = number; // row-major: n, then the other dimensions
                for (int32_t d = a.ndim - 1; d >= 0; d--) {
                    if (d == 1) continue;
                    at += rest % a.shape[d] * a.strides[d];
                    rest /= a.shape[d];
                }
                ASSERT_EQ(at, place(w, array, number)) << seed << " " << number;
            }
        }
    }
}

TEST(CudaChannels, WalksJoinWhatIsContiguous) {
    const tartan_cuda_walk last = walk_of(images(3, 16, {5, 7}, kChannelsLast));
    EXPECT_EQ(1, last.ndim); // all positions follow each other
    EXPECT_TRUE(last.by_channel);
    EXPECT_TRUE(last.wide);
    const tartan_cuda_walk first = walk_of(images(3, 16, {5, 8}, kRows));
    EXPECT_EQ(2, first.ndim);
    EXPECT_EQ(40, first.length[1]);
    EXPECT_FALSE(first.by_channel);
    EXPECT_TRUE(first.wide);
    EXPECT_FALSE(walk_of(images(3, 16, {5, 7}, kRows)).wide); // a line is no multiple of 16 bytes
    EXPECT_FALSE(walk_of(images(3, 18, {5, 7}, kChannelsLast)).wide);
    EXPECT_TRUE(walk_of(images(3, 18, {}, kRows, TARTAN_F64)).by_channel); // no positions but the images
    Linear shifted = images(3, 16, {5, 7}, kChannelsLast);
    shifted.y.array.data = (void *)4100;
    EXPECT_FALSE(walk_of(shifted).wide);
}

// Each weight that has channels belongs to one output of one item; the lists of channels have every output once.
TEST(CudaChannels, TablesHaveEveryWeightOnce) {
    for (uint64_t seed = 0; seed < 120; seed++) {
        SCOPED_TRACE(::testing::Message() << "seed " << seed);
        const Normal n = make_normal(seed);
        const tartan_context context = {};
        std::mt19937_64 random(seed);
        const Matrix filter = n.matrix(TARTAN_F32, random);
        tartan_op_conv_normalize op = {};
        op.function = "test";
        op.conv = n.conv.get();
        op.filter = filter.get(), op.out = filter.get();
        tartan_cuda_conv_normalize p;
        ASSERT_OK(tartan_cuda_conv_normalize_of(&tartan_i_host, &context, &op, &p));
        EXPECT_EQ(n.layout->blocks == 0, p.nothing);
        tartan_cuda_conv_sets t = {};
        if (seed < 2) {
            BRUTAL(tartan_cuda_conv_sets_make(&tartan_i_host, &p, &t), tartan_i_host.free(t.values));
        }
        ASSERT_OK(tartan_cuda_conv_sets_make(&tartan_i_host, &p, &t));
        const std::unique_ptr<int32_t, void (*)(void *)> owned(t.values,
                                                               [](void *v) { tartan_i_host.free(v); });
        const tartan_layout *l = n.layout.get();
        const int64_t br = l->shape.block_rows, bc = l->shape.block_cols, slots = n.conv->cols.slots;
        const bool turned = n.conv->options.transposed;
        std::vector<int> seen((size_t)(l->blocks * br * bc));
        std::map<int32_t, int64_t> channel_of; // of each output of an item
        for (int64_t i = 0; i < t.items; i++) {
            const int32_t *item = t.values + 4 * i;
            for (int32_t o = 0; o < item[3]; o++) {
                const int64_t slot = item[2] + o;
                channel_of[(int32_t)(i * p.outputs.edge + o)] =
                    p.outputs.channels->of != nullptr ? p.outputs.channels->of[slot] : slot;
                for (int32_t k = 0; k < item[1]; k++) {
                    const int32_t *part = t.values + t.part_table + 2 * (item[0] + k);
                    const int64_t first =
                        turned ? l->block_cols[part[0]] * bc % slots : l->block_rows[part[0]] * br;
                    ASSERT_EQ(first / p.outputs.edge, slot / p.outputs.edge);
                    for (int32_t j = 0; j < part[1]; j++) {
                        const int64_t inside = slot - first;
                        seen[(size_t)(part[0] * br * bc + (turned ? j * bc + inside : inside * bc + j))]++;
                    }
                }
            }
        }
        for (int64_t id = 0; id < l->blocks; id++)
            for (int64_t r = 0; r < br; r++)
                for (int64_t c = 0; c < bc; c++) {
                    const int64_t row = l->block_rows[id] * br + r,
                                  col = (l->block_cols[id] * bc + c) % slots;
                    const auto exists = [](const tartan_i_channels &side, int64_t slot) {
                        return slot < side.slots &&
                               (side.of != nullptr ? side.of[slot] >= 0 : slot < side.count);
                    };
                    ASSERT_EQ(exists(n.conv->rows, row) && exists(n.conv->cols, col),
                              seen[(size_t)(id * br * bc + r * bc + c)]);
                }
        const int32_t *first = t.values + t.first, *list = t.values + t.of_channel;
        ASSERT_EQ((int32_t)channel_of.size(), first[n.outputs]);
        for (int64_t c = 0; c < n.outputs; c++)
            for (int32_t i = first[c]; i < first[c + 1]; i++) {
                ASSERT_EQ(c, channel_of.at(list[i]));
                if (i > first[c]) {
                    ASSERT_LT(list[i - 1], list[i]);
                }
            }
    }
}
