/* SPDX-License-Identifier: Apache-2.0
 * The shared memory of attention_forward_wgmma.cu and what a producer hands to the consumers in it. */
#ifndef TARTAN_CUDA_ATTENTION_RING_CUH
#define TARTAN_CUDA_ATTENTION_RING_CUH

#include "device/launch.cuh"
#include "device/ptx_wgmma.cuh"
#include "kernels/attention_lists.cuh"

namespace tartan_cuda {

namespace {

enum { kBoards = 1 };

/* Queries of one head, and the list of their keys. */
struct QueryTile {
    int32_t row; /* its first query; < 0: there are no more tiles */
    int32_t head, entry;
    int32_t part; /* of a list that is split (attention_split.cuh) */
    RowList list;
};

/* A CTA has two consumer warpgroups of 64 queries each. They are one team, which shares a list, or two teams with a list
 * and a producer warp each. Tiles of kKeys keys; kWidth elements a head, of which some may be padding. */
template <int kWidth_, int kTeams_, int kKeys_, int kStages_, int kBuffers_> struct AttentionForm {
    static constexpr int kWidth = kWidth_, kTeams = kTeams_, kKeys = kKeys_;
    static constexpr int kStages = kStages_;       /* of keys, and of values */
    static constexpr int kBuffers = kBuffers_;     /* of queries */
    static constexpr int kWarpgroups = 2 / kTeams; /* of a team */
    static constexpr int kRows = 64 * kWarpgroups;
    /* There are registers for attention_forward_deep.cuh; with two teams it gains nothing. */
    static constexpr bool kDeep = kWidth == 64 && kTeams == 1;
    static constexpr bool kTurns = kWarpgroups == 2 && !kDeep; /* warpgroups ask for products in turns */
    static constexpr int kPanels = kWidth / 64;                /* of 128 bytes of every row */
    static constexpr uint32_t kQueryPanel = 64 * 128, kQueries = kWarpgroups * kPanels * kQueryPanel;
    static constexpr uint32_t kKeyPanel = kKeys * 128, kKeyTile = kPanels * kKeyPanel;

    using Step = ListStep<kRows == 128 ? 1 : kRows / 8, kKeys>; /* blocks of 128 queries, or smaller ones */

    /* Of a team. */
    static constexpr uint32_t kK = kBuffers * kQueries, kV = kK + kStages * kKeyTile;
    static constexpr uint32_t kBarriers = kV + kStages * kKeyTile;
    static constexpr uint32_t kBoard = kBarriers + 8 * (4 * kStages + 2 * kBuffers + 2 * kBoards);
    static constexpr uint32_t kSteps = kBoard + kBoards * (uint32_t)sizeof(QueryTile);
    static constexpr uint32_t kUsed = kSteps + kStages * (uint32_t)sizeof(Step);
    /* Tiles are aligned to 1024 bytes; what is small lies behind the tiles of all teams. */
    static constexpr uint32_t kTiles = kBarriers, kSmall = (kUsed - kBarriers + 15) / 16 * 16;
    static constexpr uint32_t kShared = kTeams * (kTiles + kSmall);
    static_assert(kShared <= 227 * 1024, "shared memory of a CTA");
};

enum { kAttentionThreads = 384, kAttentionConsumerRegisters = 232, kAttentionProducerRegisters = 40 };

template <class Form> struct AttentionRing {
    uint8_t *small; /* memory of what is small, less kBarriers */
    uint32_t base, small_base;
    __device__ AttentionRing(uint8_t *shared, uint32_t team)
        : small(shared + Form::kTeams * Form::kTiles + team * Form::kSmall - Form::kBarriers),
          base(shared_address(shared) + team * Form::kTiles),
          small_base(shared_address(shared) + Form::kTeams * Form::kTiles + team * Form::kSmall) {}
    __device__ uint32_t queries(uint32_t buffer, uint32_t warpgroup) const {
        return base + buffer * Form::kQueries + warpgroup * Form::kPanels * Form::kQueryPanel;
    }
    __device__ uint32_t keys(uint32_t stage) const { return base + Form::kK + stage * Form::kKeyTile; }
    __device__ uint32_t values(uint32_t stage) const { return base + Form::kV + stage * Form::kKeyTile; }
    __device__ uint32_t barrier(uint32_t number) const { return small_base + 8 * number; }
    __device__ uint32_t keys_full(uint32_t stage) const { return barrier(4 * stage); }
    __device__ uint32_t keys_empty(uint32_t stage) const { return barrier(4 * stage + 1); }
    __device__ uint32_t values_full(uint32_t stage) const { return barrier(4 * stage + 2); }
    __device__ uint32_t values_empty(uint32_t stage) const { return barrier(4 * stage + 3); }
    __device__ uint32_t queries_full(uint32_t buffer) const {
        return barrier(4 * Form::kStages + 2 * buffer);
    }
    __device__ uint32_t queries_empty(uint32_t buffer) const { return queries_full(buffer) + 8; }
    __device__ uint32_t posted(uint32_t board) const {
        return barrier(4 * Form::kStages + 2 * Form::kBuffers + 2 * board);
    }
    __device__ uint32_t read(uint32_t board) const { return posted(board) + 8; }
    __device__ QueryTile *tile(uint32_t board) const { return (QueryTile *)(small + Form::kBoard) + board; }
    __device__ typename Form::Step *step(uint32_t stage) const {
        return (typename Form::Step *)(small + Form::kSteps) + stage;
    }
    /* By one thread, before any other uses the ring. */
    __device__ void init() const {
        constexpr uint32_t kWarps = 4 * Form::kWarpgroups; /* values are read by products alone */
        for (uint32_t s = 0; s < Form::kStages; s++) {
            barrier_init(keys_full(s), 32);
            barrier_init(keys_empty(s), 32 * kWarps);
            barrier_init(values_full(s), 1);
            barrier_init(values_empty(s), kWarps);
        }
        for (uint32_t b = 0; b < Form::kBuffers; b++) {
            barrier_init(queries_full(b), 1);
            barrier_init(queries_empty(b), Form::kWarpgroups);
        }
        for (uint32_t t = 0; t < kBoards; t++) {
            barrier_init(posted(t), 1);
            barrier_init(read(t), 32 * kWarps);
        }
        barrier_init_fence();
    }
};

/* Parameters of the kernel. */
struct AttentionProblem : AttentionLists {
    int32_t batch, heads, heads_per_kv;
    int32_t tiles, splits, d; /* tiles of all parts; parts of a list */
    float scale;
    int32_t *counters;
    bool boxes; /* TMA stores out */
    void *out;
    int32_t out_dtype;
    int64_t out_part, out_batch, out_head, out_token, out_element;
    float *lse; /* or NULL */
    int64_t lse_part, lse_batch, lse_head, lse_token;
    const float *sinks; /* one for each head, or NULL */
    int64_t sinks_element;
    const void *q, *k, *v; /* for rows that are computed again */
    int64_t q_batch, q_head, q_token, k_batch, k_head, k_token, v_batch, v_head, v_token;
};

__device__ __forceinline__ int64_t out_of(const AttentionProblem &p, const QueryTile &t) {
    return t.part * p.out_part + t.entry * p.out_batch + t.head * p.out_head;
}

} // namespace

} // namespace tartan_cuda

#endif
