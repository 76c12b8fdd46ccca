/* SPDX-License-Identifier: Apache-2.0
 * What both kernels of attention_backward_wgmma.cu share: the shared memory, the parameters, the producer. Each keeps two
 * tensors of a tile of tokens in shared memory (dq: q and out_grad; dk and dv: k and v) while those of the tokens that
 * its merged list names stream past, 64 at a time (k and v; q and out_grad). */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_RING_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_RING_CUH

#include "device/launch.cuh"
#include "device/ptx_wgmma.cuh"
#include "device/tile_store.cuh"
#include "kernels/attention_seen.cuh"

namespace tartan_cuda {

namespace {

/* A CTA has two consumer warpgroups. They are two teams of 64 tokens, with a list and a producer warp each; or one team of
 * 128 tokens, which shares a list; or, kSplit, one team of 64 tokens, of which each warpgroup computes all weights, but
 * half of the elements of the gradients, so that those of 256 elements a head fit in registers. kWidth: elements a head,
 * of which some may be padding. kLines_: the most lines that share a list. kExtra: bytes of a team for other tiles: as a rule
 * for results that do not fit in a stage. */
template <int kWidth_, int kTeams_, int kStages_, bool kSplit_ = false, int kLines_ = 0,
          uint32_t kExtra = kTeams_ == 1 && !kSplit_ ? 2 * 64 * kWidth_ * 2 : 0>
struct BackwardForm {
    static constexpr int kWidth = kWidth_, kTeams = kTeams_, kStages = kStages_;
    static constexpr bool kSplit = kSplit_;
    static constexpr bool kRotates = false;        /* tiles begin at different places of their lists */
    static constexpr int kWarpgroups = 2 / kTeams; /* of a team */
    static constexpr bool kEarly = !kSplit; /* lse and delta are loaded ahead: there are registers for them */
    static constexpr bool kFlows = kEarly && kTeams == 1; /* dk of a step is added up beside the next step */
    static constexpr uint32_t kKeptArrivals = 4 * kWarpgroups;     /* of warps that have read kept tensors */
    static constexpr int kKeptTiles = kSplit ? 1 : kWarpgroups;    /* of 64 tokens, of a team */
    static constexpr int kOutWidth = kSplit ? kWidth / 2 : kWidth; /* elements of a warpgroup's gradients */
    static constexpr int kRows = 64 * kKeptTiles, kStreamed = 64;
    /* Two gradients of 128 elements leave the producer few. In all no more than at launch, 168 each. */
    static constexpr int kConsumerRegisters = kWidth > 64 ? 240 : 232;
    static constexpr int kProducerRegisters = kWidth > 64 ? 24 : 40;
    static constexpr int kPanels = kWidth / 64, kOutPanels = kOutWidth / 64;
    static constexpr uint32_t kPanel = 64 * 128, kTile = kPanels * kPanel; /* 64 tokens of one tensor */

    /* Tiles of 128 tokens are of one line if nothing else is said. */
    using Step = ListStep<(kLines_ > 0 ? kLines_ : kRows == 128 ? 1 : kRows / 8), kStreamed>;
    struct Board {
        int32_t row;         /* the first kept token; < 0: there are no more tiles */
        int32_t head, entry; /* of the kept tensors */
        int32_t steps;       /* of all heads of the group */
        int32_t pad[4];
    };

    /* Of a team. */
    static constexpr uint32_t kKept = 0, kStreams = 2 * kKeptTiles * kTile;
    static constexpr uint32_t kOthers = kStreams + kStages * 2 * kTile;
    static constexpr uint32_t kVectors = kOthers + kExtra; /* lse and delta of streamed queries */
    static constexpr uint32_t kBarriers = kVectors + kStages * 2 * kStreamed * 4;
    static constexpr uint32_t kBoard = kBarriers + 8 * (2 * kStages + 4);
    static constexpr uint32_t kSteps = kBoard + (uint32_t)sizeof(Board);
    static constexpr uint32_t kTeam = (kSteps + kStages * (uint32_t)sizeof(Step) + 1023) / 1024 * 1024;
    static constexpr uint32_t kShared = kTeams * kTeam;
    static_assert(kShared <= 227 * 1024, "shared memory of a CTA");
};

enum { kBackwardThreads = 384 };

template <class Form> struct BackwardRing {
    uint8_t *memory;
    uint32_t base;
    /* Tensor 0 or 1 of a warpgroup's 64 tokens; of a stage. */
    __device__ uint32_t kept(uint32_t tensor, uint32_t warpgroup) const {
        return base + Form::kKept + (2 * (Form::kSplit ? 0 : warpgroup) + tensor) * Form::kTile;
    }
    __device__ uint32_t streamed(uint32_t tensor, uint32_t stage) const {
        return base + Form::kStreams + (2 * stage + tensor) * Form::kTile;
    }
    /* Vector 0 (lse) or 1 (delta) of a stage. */
    __device__ uint32_t vector_at(uint32_t which, uint32_t stage) const {
        return base + Form::kVectors + (2 * stage + which) * Form::kStreamed * 4;
    }
    __device__ const float *vector(uint32_t which, uint32_t stage) const {
        return (const float *)(memory + Form::kVectors) + (2 * stage + which) * Form::kStreamed;
    }
    __device__ uint32_t full(uint32_t stage) const { return base + Form::kBarriers + 16 * stage; }
    __device__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
    __device__ uint32_t kept_full() const { return full(Form::kStages); }
    __device__ uint32_t kept_empty() const { return kept_full() + 8; }
    __device__ uint32_t posted() const { return kept_full() + 16; }
    __device__ uint32_t read() const { return kept_full() + 24; }
    __device__ typename Form::Board *board() const { return (typename Form::Board *)(memory + Form::kBoard); }
    __device__ typename Form::Step *step(uint32_t stage) const {
        return (typename Form::Step *)(memory + Form::kSteps) + stage;
    }
    __device__ void init() const {
        constexpr uint32_t kThreads = 128 * Form::kWarpgroups; /* that have read a stage or the board */
        for (uint32_t s = 0; s < Form::kStages; s++) {
            barrier_init(full(s), 32);
            barrier_init(empty(s), kThreads);
        }
        barrier_init(kept_full(), 1);
        barrier_init(kept_empty(), Form::kKeptArrivals);
        barrier_init(posted(), 1);
        barrier_init(read(), kThreads);
        barrier_init_fence();
    }
};

/* An output [batch, heads, tokens, d] of any strides. */
struct Gradient {
    void *data;
    int64_t batch, head, token, element;
};

struct BackwardProblem : AttentionLists {
    int32_t kept_heads, heads_per_kv;
    int32_t
        streamed_heads; /* that a kept head sees one after the other: heads_per_kv for dk and dv, else 1 */
    int32_t tiles, d, dtype;
    int32_t group_rows, kept_parts; /* rows of a group, and tiles of rows in it */
    float scale;
    float *lse, *delta; /* [batch][heads][padded], see attention_backward_wgmma.cu */
    tartan_cuda_tensor out,
        logs; /* of the forward pass; if out.data, the kernel of dq writes lse and delta */
    int32_t heads, padded;
    int32_t *counters;
    Gradient gradients[2]; /* dq; dk and dv */
    bool boxes;            /* TMA stores them */
    int32_t *wrong_count;  /* rows to be computed again, see attention_backward_repair.cuh */
    int64_t *wrong_rows;
};

/* The first list of head `streamed` of those that a kept head sees. */
__device__ __forceinline__ int32_t first_line(const BackwardProblem &p, int32_t entry, int32_t kept_head,
                                              int32_t streamed) {
    return (entry * p.layout_entry + (kept_head * p.streamed_heads + streamed) * p.layout_head) * p.groups;
}

/* ---- The producer: one warp for each team ---- */

/* What a lane loads of every streamed tile: boxes, each a panel of a slot of one tensor, and where queries stream past, lse
 * or delta of a slot. */
template <class Form> struct StreamBoxes {
    static constexpr int kEach = (2 * Form::Step::kSlots * Form::kPanels + 31) / 32;
    int32_t slot; /* of all its boxes */
    __device__ __forceinline__ explicit StreamBoxes(const BackwardProblem &p)
        : slot((int32_t)threadIdx.x % 32 & (p.slots - 1)) {}
    __device__ __forceinline__ void load(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                         const CUtensorMap *map0, const CUtensorMap *map1, uint32_t stage,
                                         int32_t token, int32_t head, int32_t entry) const {
        const uint32_t full = ring.full(stage), vectors = p.by_keys ? 2 * Form::kStreamed * 4 : 0;
        const int32_t lane = threadIdx.x % 32, at = __shfl_sync(~0u, token, slot);
        if (lane == 0)
            barrier_expect(full, 2 * Form::kTile + vectors);
        else
            barrier_arrive(full); /* it has described a part of the step */
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kEach; i++) {
            const int32_t panel = (lane + 32 * i) >> p.shift_slots;
            const uint32_t offset = (uint32_t)(panel % Form::kPanels) * Form::kPanel +
                                    (uint32_t)slot * (Form::kPanel >> p.shift_slots);
            const int32_t element = 64 * (panel % Form::kPanels);
            if (panel < Form::kPanels)
                tensor_load_5d(ring.streamed(0, stage) + offset, map0, full, element, at, 0, head, entry);
            else if (panel < 2 * Form::kPanels)
                tensor_load_5d(ring.streamed(1, stage) + offset, map1, full, element, at, 0, head, entry);
        }
        if (p.by_keys && lane < 2 << p.shift_slots) {
            const uint32_t which = (uint32_t)(lane >> p.shift_slots), bytes = 64 * 4 >> p.shift_slots;
            const int64_t query = at >= p.columns ? p.padded - 64 : at; /* past the end: infinity */
            bulk_load(ring.vector_at(which, stage) + (uint32_t)slot * bytes,
                      (which == 0 ? p.lse : p.delta) + ((int64_t)entry * p.heads + head) * p.padded + query,
                      bytes, full);
        }
    }
};

template <class Form>
__device__ __forceinline__ void load_kept(const BackwardRing<Form> &ring, const CUtensorMap *map0,
                                          const CUtensorMap *map1, int32_t row, int32_t head, int32_t entry) {
    const int32_t lane = threadIdx.x % 32, panel = lane % Form::kPanels, rest = lane / Form::kPanels;
    const int32_t tensor = rest % 2, warpgroup = rest / 2;
    if (lane == 0) barrier_expect(ring.kept_full(), 2 * Form::kKeptTiles * Form::kTile);
    __syncwarp();
    if (warpgroup < Form::kKeptTiles)
        tensor_load_5d(ring.kept((uint32_t)tensor, (uint32_t)warpgroup) + panel * Form::kPanel,
                       tensor == 0 ? map0 : map1, ring.kept_full(), 64 * panel, row + 64 * warpgroup, 0, head,
                       entry);
}

/* maps: kept tensors 0 and 1, streamed tensors 0 and 1. */
template <class Form>
__device__ __forceinline__ void produce_backward(const BackwardProblem &p, const BackwardRing<Form> &ring,
                                                 int32_t number, const CUtensorMap *kept0,
                                                 const CUtensorMap *kept1, const CUtensorMap *streamed0,
                                                 const CUtensorMap *streamed1) {
    const int32_t lane = threadIdx.x % 32, teams = (int32_t)gridDim.x * Form::kTeams;
    PipelineState<Form::kStages> stage;
    const StreamBoxes<Form> box(p);
    for (uint32_t parity = 0;; parity ^= 1) {
        barrier_wait(ring.read(), parity ^ 1);
        if (number >= p.tiles) {
            if (lane == 0) {
                ring.board()->row = -1;
                barrier_arrive(ring.posted());
            }
            break;
        }
        const int32_t tiles = p.groups * p.kept_parts;
        const auto [matrix, rank] = rank_of(p, number, tiles, p.tiles / tiles);
        const int32_t entry = matrix / p.kept_heads, head = matrix - entry * p.kept_heads;
        /* Several heads see a kv head: the order is that of the first one's lists. */
        const int32_t first = first_line(p, entry, head, 0);
        const int32_t group = p.kept_parts > 1 ? rank / p.kept_parts : rank;
        const int32_t of_head = p.order[first + (p.last_first ? p.groups - 1 - group : group)] - first;
        const int32_t row = of_head * p.group_rows + (rank - group * p.kept_parts) * Form::kRows;
        int32_t steps = 0;
        for (int32_t h = 0; h < p.streamed_heads; h++) {
            const int32_t line = first_line(p, entry, head, h) + of_head;
            steps += steps_of(p, find_list(p, line, row, Form::kRows));
        }
        if (lane == 0) {
            *ring.board() = {row, head, entry, steps, {}};
            barrier_arrive(ring.posted());
            number = next_tile_number(p.counters) + (teams - (int32_t)gridDim.x);
        }
        __syncwarp();
        barrier_wait(ring.kept_empty(), parity ^ 1);
        load_kept(ring, kept0, kept1, row, head, entry);
        const int32_t bound = bound_of(p, row, Form::kRows);
        for (int32_t h = 0; h < p.streamed_heads; h++) {
            const int32_t streamed_head = p.by_keys ? head * p.heads_per_kv + h : head / p.heads_per_kv;
            const int32_t line = first_line(p, entry, head, h) + of_head;
            const RowList l = find_list(p, line, row, Form::kRows);
            const int32_t list_steps = steps_of(p, l);
            ListEntries<typename Form::Step> list;
            int32_t at = Form::kRotates ? (int32_t)((int64_t)list_steps * rank / tiles) : 0;
            list.fetch(p, l, at);
            for (int32_t step = 0; step < list_steps; step++) {
                ListEntries<typename Form::Step> next;
                const int32_t then = Form::kRotates && at + 1 == list_steps ? 0 : at + 1;
                next.fetch(p, l, then);
                list.fetch_words(p);
                barrier_wait(ring.empty(stage.at), stage.parity ^ 1);
                const int32_t token =
                    describe_step(p, ring.step(stage.at), list, at, bound, p.by_keys ? streamed_head : head);
                box.load(p, ring, streamed0, streamed1, stage.at, token, streamed_head, entry);
                stage.next();
                list = next, at = then;
            }
        }
        number = __shfl_sync(~0u, number, 0);
    }
    if (lane == 0) leave_counters(p.counters, teams);
}

/* ---- What consumers share ---- */

/* d = kept streamed^T, in flight: 64 kept tokens by 64 streamed ones. */
template <Factor kFactor, class Form>
__device__ __forceinline__ void multiply_tokens(float (&d)[32], uint32_t kept, uint32_t streamed) {
    constexpr uint64_t kMajor = (uint64_t)(16 >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
    const uint64_t a = kMajor | in_descriptor(kept), b = kMajor | in_descriptor(streamed);
#pragma unroll
    for (int i = 0; i < Form::kWidth / 16; i++) {
        const uint32_t at = (i / 4 * Form::kPanel + i % 4 * 32) >> 4;
        wgmma_shared<kFactor, 64>(d, a + at, b + at, i > 0);
    }
    wgmma_commit();
}

/* d += weights streamed, in flight: weights of 64 kept tokens by 64 streamed ones; of `streamed` the elements from the
 * address on. */
template <Factor kFactor, class Form>
__device__ __forceinline__ void accumulate(float (&d)[Form::kOutWidth / 2], const uint32_t (&weights)[16],
                                           uint32_t streamed, bool keep) {
    constexpr uint64_t kMnMajor =
        (uint64_t)(Form::kPanel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
    const uint64_t b = kMnMajor | in_descriptor(streamed);
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_registers<kFactor, Form::kOutWidth>(d, weights + 4 * i, b + ((i * 16 * 128) >> 4),
                                                  keep || i > 0);
    wgmma_commit();
}

} // namespace

} // namespace tartan_cuda

#endif
