/* SPDX-License-Identifier: Apache-2.0
 * What both kernels of attention_backward_wgmma.cu share: the shared memory, the parameters, products. Each keeps two
 * tensors of a tile of tokens in shared memory (dq: q and out_grad; dk and dv: k and v) while the tensors of the
 * tokens that its merged list names stream past, 64 at a time (k and v; q and out_grad). */
#ifndef TARTAN_CUDA_ATTENTION_BACKWARD_RING_CUH
#define TARTAN_CUDA_ATTENTION_BACKWARD_RING_CUH

#include "device/launch.cuh"
#include "device/ptx_wgmma.cuh"
#include "device/tile_store.cuh"
#include "kernels/attention_descriptor.cuh"
#include "kernels/attention_seen.cuh"

namespace tartan_cuda {

namespace {

/* A CTA has two consumer warpgroups. They are two teams of 64 tokens, with a list and producers each; or one team of
 * 128 tokens, which shares a list; or, with kSplit, one team of 64 tokens, in which each warpgroup computes all weights but
 * half of each gradient, so that gradients of 256 elements a head fit in registers. kWidth: elements a head, of which some may
 * be padding. kBuffers: of kept tensors, which the next tile loads while one is used. kLines_: the most lines that share a
 * list. kExtra: bytes of a team for other tiles. */
template <int kWidth_, int kTeams_, int kStages_, int kBuffers_ = 1, bool kSplit_ = false, int kLines_ = 0,
          uint32_t kExtra = 0>
struct BackwardForm {
    static constexpr int kWidth = kWidth_, kTeams = kTeams_, kStages = kStages_, kBuffers = kBuffers_;
    static constexpr bool kSplit = kSplit_;
    static constexpr bool kRotates = false;        /* tiles begin at different places of their lists */
    static constexpr int kWarpgroups = 2 / kTeams; /* of a team */
    static constexpr bool kEarly = !kSplit; /* lse and delta are loaded ahead: there are registers for them */
    /* There are registers for kept queries and gradients of the output as factors, and for attention_backward_deep.cuh. */
    static constexpr bool kInRegisters = kWidth == 64, kDeep = kWidth == 64;
    static constexpr bool kFlows = kEarly && kTeams == 1; /* dk of a step is added up beside the next step */
    static constexpr uint32_t kKeptArrivals = 128 * kWarpgroups; /* of threads that have read kept tensors */
    static constexpr int kKeptTiles = kSplit ? 1 : kWarpgroups;  /* of 64 tokens, of a team */
    static constexpr int kOutWidth = kSplit ? kWidth / 2 : kWidth; /* elements of a warpgroup's gradients */
    static constexpr int kRows = 64 * kKeptTiles, kStreamed = 64;
    /* Two gradients of 128 elements leave the producer few registers. The total is no more than at launch, 168 each. */
    static constexpr int kConsumerRegisters = kWidth > 64 ? 240 : 232;
    static constexpr int kProducerRegisters = kWidth > 64 ? 24 : 40;
    static constexpr int kPanels = kWidth / 64, kOutPanels = kOutWidth / 64;
    static constexpr uint32_t kPanel = 64 * 128, kTile = kPanels * kPanel; /* 64 tokens of one tensor */

    using Descriptor = std::conditional_t<kSplit, uint32_t, uint64_t>; /* whichever is faster */

    /* By default a tile of 128 tokens is of one line. */
    using Step = ListStep<(kLines_ > 0 ? kLines_ : kRows == 128 ? 1 : kRows / 8), kStreamed>;
    struct Board {
        int32_t row;         /* the first kept token; < 0: there are no more tiles */
        int32_t head, entry; /* of the kept tensors */
        int32_t steps;       /* of all streamed heads */
        int32_t group, rank; /* of the lists' lines; of the tile, in its head */
        RowList list;        /* of the first streamed head */
    };

    /* Of a team. */
    static constexpr uint32_t kKept = 0, kStreams = kBuffers * 2 * kKeptTiles * kTile;
    static constexpr uint32_t kOthers = kStreams + kStages * 2 * kTile;
    static constexpr uint32_t kVectors = kOthers + kExtra; /* lse and delta of streamed queries */
    static constexpr uint32_t kBarriers = kVectors + kStages * 2 * kStreamed * 4;
    static constexpr uint32_t kBoard = kBarriers + 8 * (2 * kStages + 2 * kBuffers + 2);
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
    __device__ uint32_t kept(uint32_t tensor, uint32_t warpgroup, uint32_t buffer = 0) const {
        const uint32_t tile = buffer * Form::kKeptTiles + (Form::kSplit ? 0 : warpgroup);
        return base + Form::kKept + (2 * tile + tensor) * Form::kTile;
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
    __device__ uint32_t kept_full(uint32_t buffer = 0) const { return full(Form::kStages + buffer); }
    __device__ uint32_t kept_empty(uint32_t buffer = 0) const { return kept_full(buffer) + 8; }
    __device__ uint32_t posted() const { return full(Form::kStages + Form::kBuffers); }
    __device__ uint32_t read() const { return posted() + 8; }
    __device__ typename Form::Board *board() const { return (typename Form::Board *)(memory + Form::kBoard); }
    __device__ typename Form::Step *step(uint32_t stage) const {
        return (typename Form::Step *)(memory + Form::kSteps) + stage;
    }
    __device__ void init() const {
        constexpr uint32_t kThreads =
            128 * Form::kWarpgroups; /* that have read a stage; the board is for producers, too */
        for (uint32_t s = 0; s < Form::kStages; s++) {
            barrier_init(full(s), 32);
            barrier_init(empty(s), kThreads);
        }
        for (uint32_t b = 0; b < Form::kBuffers; b++) {
            barrier_init(kept_full(b), 1);
            barrier_init(kept_empty(b), Form::kKeptArrivals);
        }
        barrier_init(posted(), 1);
        barrier_init(read(), kThreads + 32);
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
    /* How many kept heads share k and v, each with a part of the heads that see them: their gradients are sums in memory, in
     * f32, which another kernel adds up. Else 1. */
    int32_t kept_share;
    int32_t tiles, d, dtype; /* dtype: of the gradients */
    bool draws_early; /* a tile is looked for while the one before waits: lists are short, and so are equal */
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

/* ---- What consumers share ---- */

/* d = kept streamed^T, in flight: 64 kept tokens by 64 streamed ones. */
template <Factor kFactor, class Form>
__device__ __forceinline__ void multiply_tokens(float (&d)[32], uint32_t kept, uint32_t streamed) {
    using Descriptor = typename Form::Descriptor;
    const Descriptor a = k_major<Descriptor>(kept), b = k_major<Descriptor>(streamed);
#pragma unroll
    for (int i = 0; i < Form::kWidth / 16; i++) {
        const uint32_t at = (i / 4 * Form::kPanel + i % 4 * 32) >> 4;
        wgmma_shared<kFactor, 64>(d, descriptor(a + at), descriptor(b + at), i > 0);
    }
    wgmma_commit();
}

/* The same; `kept`: the warpgroup's tokens in registers. */
template <Factor kFactor, class Form>
__device__ __forceinline__ void multiply_tokens(float (&d)[32], const uint32_t (&kept)[Form::kWidth / 16][4],
                                                uint32_t streamed) {
    using Descriptor = typename Form::Descriptor;
    const Descriptor b = k_major<Descriptor>(streamed);
#pragma unroll
    for (int i = 0; i < Form::kWidth / 16; i++)
        wgmma_registers<kFactor, 64, 0>(d, kept[i],
                                        descriptor(b + ((i / 4 * Form::kPanel + i % 4 * 32) >> 4)), i > 0);
    wgmma_commit();
}

/* d += weights streamed, in flight: weights of 64 kept tokens by 64 streamed ones, and the elements of `streamed` from
 * the address on. */
template <Factor kFactor, class Form>
__device__ __forceinline__ void accumulate(float (&d)[Form::kOutWidth / 2], const uint32_t (&weights)[16],
                                           uint32_t streamed, bool keep) {
    using Descriptor = typename Form::Descriptor;
    const Descriptor b = mn_major<Descriptor, Form::kPanel>(streamed);
#pragma unroll
    for (int i = 0; i < 4; i++)
        wgmma_registers<kFactor, Form::kOutWidth>(d, weights + 4 * i, descriptor(b + ((i * 16 * 128) >> 4)),
                                                  keep || i > 0);
    wgmma_commit();
}

} // namespace

} // namespace tartan_cuda

#endif
