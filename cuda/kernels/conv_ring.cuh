/* SPDX-License-Identifier: Apache-2.0
 * The shared memory of conv_wgmma.cu, and the warps that fill it. */
#ifndef TARTAN_CUDA_CONV_RING_CUH
#define TARTAN_CUDA_CONV_RING_CUH

#include "conv_tables.h"
#include "device/ptx_tf32.cuh"
#include "device/ptx_wgmma.cuh"
#include "device/ring.cuh"
#include "kernels/conv_positions.cuh"

namespace tartan_cuda {

namespace {

enum {
    kConvThreads = 384, /* a warpgroup whose warps load pixels and weights, and two that multiply: */
    kConvTeams = 2,     /* tile after tile in turns, one while the other stores */
    kConvWeights = 4,   /* steps of weights in shared memory */
    kConvTiles = 3,     /* handed out ahead */
    kConvStages = TARTAN_CUDA_CONV_STAGES,
    kConvWeightBytes = TARTAN_CUDA_CONV_ITEM_BYTES * TARTAN_CUDA_CONV_ITEMS,
    kConvWords = TARTAN_CUDA_CONV_ITEMS + 1, /* of a step: where its items' pixels begin, and its marks */
    kConvWordBytes = 48,
    kConvRoom = 1024,  /* staging of a warp's results, where they do not leave as boxes */
    kConvDividers = 64 /* threads that divide factors into two parts */
};

/* A unit of a tile: its first pixel, and the pixels that are written: those inside [begin, end). */
struct ConvUnit {
    int32_t image, d, h, w;
    int32_t h_end, w_end;
};

struct ConvTile {
    int32_t list; /* < 0: there are no more tiles */
    int32_t first_step, steps;
    uint32_t stage, stage_parity, step, step_parity; /* where its pixels and weights begin in their rings */
    ConvUnit unit[4];
};

struct ConvProblem {
    tartan_cuda_conv_form form;
    tartan_cuda_conv_lists lists;
    const char *packed;                       /* weights of each step, unless they are loaded in place */
    uint32_t a_low, a_high, a_next, a_second; /* their descriptors */
    int32_t *counters;
    uint32_t units;                /* of all images or windows; of a dynamic layout, of its capacity */
    uint32_t panel;                /* tiles of pixels that all lists compute before they go on */
    uint32_t depth;                /* planes of an image, in a phase */
    int32_t groups;                /* of output slots */
    int32_t spread[TARTAN_I_DIMS]; /* between positions of `to` that are neighbours in a phase */
    int32_t step[TARTAN_I_DIMS];   /* between the pixels of neighbours */
    uint32_t stage_boxed;          /* bytes that the boxes of a stage write */
    int32_t size[TARTAN_I_DIMS];   /* of `to` */
    bool alone;                    /* pixels do not depend on the kernel before, */
    bool numbered;                 /* but windows do */
    bool restricted;               /* to windows: */
    Windows windows;
    const int32_t *windows_at; /* the number of each, counted over all images */
    /* Results: 16 bits of contiguous channels, or f32 of any strides. In bytes; `to_step` between neighbours in a phase,
     * `to_phase` from phase to phase, `to_split` from the sums of a list to those of the next that has a share in them. */
    char *to;
    bool to_f32, to_wide; /* f32 that may be written by 16 bytes of channels */
    int64_t to_image, to_step[TARTAN_I_DIMS], to_phase[TARTAN_I_DIMS], to_channel, to_split;
    int32_t channels;
    const float *gain, *bias;
    int64_t gain_channel, bias_channel;
    bool relu, bias_first, as_they_are; /* no gain, bias or ReLU */
    bool boxed;                         /* by TMA */
    /* For sums that are computed again. */
    tartan_cuda_row_index filter;
    const void *values, *from;
    tartan_cuda_taps taps;
    bool adjoint;
    tartan_cuda_image from_image;
    tartan_cuda_slots from_slots, to_slots;
};

/* The shared memory of a CTA. */
struct ConvRing {
    uint8_t *memory;
    uint32_t base, weights_at, room_at, words_at, barriers_at, board_at;
    __device__ ConvRing(uint8_t *shared, const tartan_cuda_conv_form &f)
        : memory(shared), base(shared_address(shared)), weights_at((uint32_t)(f.stages * f.stage_bytes)),
          room_at(weights_at + kConvWeights * kConvWeightBytes), words_at(room_at + (uint32_t)f.room_bytes),
          barriers_at(words_at + kConvWeights * kConvWordBytes),
          board_at(barriers_at + 16 * (kConvStages + kConvWeights + kConvTiles + 3) + 8 * kConvStages) {}
    __device__ uint32_t pixels(const tartan_cuda_conv_form &f, uint32_t stage) const {
        return base + stage * (uint32_t)f.stage_bytes;
    }
    __device__ uint32_t weights(uint32_t step) const { return base + weights_at + step * kConvWeightBytes; }
    __device__ uint32_t words(uint32_t step) const { return base + words_at + kConvWordBytes * step; }
    __device__ uint32_t room(uint32_t warp) const { return base + room_at + warp * kConvRoom; }
    __device__ uint32_t full(uint32_t stage) const { return base + barriers_at + 16 * stage; }
    __device__ uint32_t empty(uint32_t stage) const { return full(stage) + 8; }
    __device__ uint32_t weights_full(uint32_t step) const { return full(kConvStages + step); }
    __device__ uint32_t weights_empty(uint32_t step) const { return weights_full(step) + 8; }
    __device__ uint32_t posted(uint32_t tile) const { return full(kConvStages + kConvWeights + tile); }
    __device__ uint32_t read(uint32_t tile) const { return posted(tile) + 8; }
    /* A team may go on: the other one has all that its last step needs. */
    __device__ uint32_t turn(uint32_t team) const { return posted(kConvTiles) + 8 * team; }
    /* The results of a tile are in shared memory; the results of a team's tile have left it. */
    __device__ uint32_t staged() const { return posted(kConvTiles + 1); }
    __device__ uint32_t drained(uint32_t team) const { return posted(kConvTiles + 2) + 8 * team; }
    /* The pixels of a stage have come, but are not divided yet. */
    __device__ uint32_t come(uint32_t stage) const { return posted(kConvTiles + 3) + 8 * stage; }
    __device__ volatile ConvTile *tile(uint32_t tile) const {
        return (volatile ConvTile *)(memory + board_at) + tile;
    }
    /* By one thread. */
    __device__ void init(const tartan_cuda_conv_form &f, bool boxed) const {
        for (int32_t s = 0; s < f.stages; s++) {
            barrier_init(full(s), f.parts == 2 ? kConvDividers : 1);
            barrier_init(empty(s), 4);
            barrier_init(come(s), 1);
        }
        for (uint32_t s = 0; s < kConvWeights; s++) {
            barrier_init(weights_full(s), kConvWords + 1); /* lanes that write words; one that loads */
            barrier_init(weights_empty(s), 4 * 32);        /* each lane, for the words that it read */
        }
        for (uint32_t t = 0; t < kConvTiles; t++) {
            barrier_init(posted(t), (uint32_t)f.units);
            barrier_init(read(t), 4 * 32 + 32 + (boxed ? 32 : 0) + (f.parts == 2 ? kConvDividers : 0));
        }
        for (uint32_t t = 0; t < kConvTeams; t++) {
            barrier_init(turn(t), 4);
            barrier_init(drained(t), 32);
        }
        barrier_init(staged(), 4 * 32);
        barrier_init_fence();
    }
};

constexpr uint32_t conv_fixed_bytes = kConvWeights * (kConvWeightBytes + kConvWordBytes) +
                                      16 * (kConvStages + kConvWeights + kConvTiles + 3) + 8 * kConvStages +
                                      kConvTiles * (uint32_t)sizeof(ConvTile);
static_assert(conv_fixed_bytes <= TARTAN_CUDA_CONV_FIXED, "shared memory beside stages and results");
static_assert(4 * kConvTeams * kConvRoom <= TARTAN_CUDA_CONV_ROOM, "staging of all warps");

/* A place in a ring whose size is known at run time. */
struct ConvStage {
    uint32_t at = 0, parity = 0;
    __device__ __forceinline__ void next(int32_t stages) {
        if ((int32_t)++at == stages) at = 0, parity ^= 1;
    }
};

/* ---- Tiles ---- */

/* What a list computes: a group of channels, and where its phase begins in `to`. */
struct ConvPart {
    int32_t group, phase[TARTAN_I_DIMS];
    char *to;
};

__device__ __forceinline__ ConvPart part_of(const ConvProblem &p, int32_t list) {
    const tartan_cuda_conv_part from = tartan_cuda_conv_part_of(list, p.form.splits, p.groups, p.spread);
    ConvPart part = {from.group, {}, p.to + from.split * p.to_split};
#pragma unroll
    for (int d = 0; d < TARTAN_I_DIMS; d++) {
        part.phase[d] = from.phase[d];
        part.to += from.phase[d] * p.to_phase[d];
    }
    return part;
}

/* Positions of a phase along a dimension. */
__device__ __forceinline__ int32_t phase_size(const ConvProblem &p, const ConvPart &part, int d) {
    return p.spread[d] == 1 ? p.size[d] : (p.size[d] - part.phase[d] + p.spread[d] - 1) / p.spread[d];
}

__device__ __forceinline__ ConvUnit find_unit(const ConvProblem &p, const ConvPart &part, uint32_t units,
                                              uint32_t number) {
    const tartan_cuda_conv_form &f = p.form;
    ConvUnit u = {-1, 0, 0, 0, 0, 0};
    if (number >= units) return u;
    const uint32_t strips = (uint32_t)f.strips, blocks = (uint32_t)f.row_blocks;
    const uint32_t strip = number % strips, block = number / strips % blocks, rest = number / strips / blocks;
    int32_t h = 0, w = 0;
    u.h_end = phase_size(p, part, 1), u.w_end = phase_size(p, part, 2);
    if (p.restricted) {
        const tartan_cuda_active &of = p.windows.of;
        const uint32_t planes = (uint32_t)of.size[0];
        uint32_t window = (uint32_t)p.windows_at[rest / planes];
        const auto origin = [&](int d) {
            const uint32_t count = (uint32_t)of.count[d], i = window % count;
            window /= count;
            return (int32_t)of.offset[d] + (int32_t)(i * (uint32_t)of.stride[d]);
        };
        w = origin(2), h = origin(1), u.d = origin(0) + (int32_t)(rest % planes);
        if (u.d < 0 || u.d >= p.size[0]) return u;
        u.image = (int32_t)window;
        u.h_end = min(u.h_end, h + (int32_t)of.size[1]), u.w_end = min(u.w_end, w + (int32_t)of.size[2]);
    } else {
        u.d = (int32_t)(rest % p.depth);
        u.image = u.d < phase_size(p, part, 0) ? (int32_t)(rest / p.depth) : -1;
    }
    u.h = h + (int32_t)(block * (f.lines ? 1 : (uint32_t)f.rows));
    u.w = w + (int32_t)(strip * (f.lines ? 8 * (uint32_t)f.rows : 8));
    return u;
}

__device__ __forceinline__ uint32_t count_units(const ConvProblem &p) {
    if (!p.restricted || !p.windows.of.dynamic) return p.units;
    return (uint32_t)p.windows.lists.pointers[p.windows.lines] * (uint32_t)p.windows.of.size[0] *
           (uint32_t)p.form.row_blocks * (uint32_t)p.form.strips;
}

/* What the warp that loads pixels knows of a tile; a lane has the unit whose boxes it loads. */
struct ConvWork {
    int32_t list, first_stage, stages, first_step, steps;
    ConvUnit unit;
};

/* A step: each lane knows where the pixels of its item begin, and all lanes know the rest. */
struct ConvWords {
    uint32_t start, marks;
    uint4 boxes[2];
};

__device__ __forceinline__ ConvWords step_words(const ConvProblem &p, int32_t step) {
    const int32_t *from = p.lists.step_table + TARTAN_CUDA_CONV_STEP * (int64_t)step;
    ConvWords words;
    words.start = __ldg((const uint16_t *)from + threadIdx.x % TARTAN_CUDA_CONV_ITEMS);
    words.marks = (uint32_t)__ldg(from + TARTAN_CUDA_CONV_MARKS);
    if (p.form.in_place) {
        const uint4 *boxes = (const uint4 *)(from + TARTAN_CUDA_CONV_FIRST_BOX);
        words.boxes[0] = __ldg(boxes), words.boxes[1] = __ldg(boxes + 1);
    }
    return words;
}

template <int kUnits>
__device__ __forceinline__ ConvWork find_work(const ConvProblem &p, uint32_t units, uint32_t tiles,
                                              uint32_t number) {
    ConvWork t = {-1, 0, 0, 0, 0, {-1, 0, 0, 0, 0, 0}};
    if (number >= tiles) return t;
    const tartan_cuda_conv_place place =
        tartan_cuda_conv_place_of(number, (units + kUnits - 1) / kUnits, p.panel, (uint32_t)p.lists.busy);
    t.list = p.lists.order[place.list];
    t.first_stage = p.lists.stages_of[t.list], t.stages = p.lists.stages_of[t.list + 1] - t.first_stage;
    t.first_step = p.lists.steps_of[t.list], t.steps = p.lists.steps_of[t.list + 1] - t.first_step;
    t.unit = find_unit(p, part_of(p, t.list), units, place.pixels * kUnits + threadIdx.x % kUnits);
    return t;
}

template <int kUnits>
__device__ __forceinline__ void post_work(const ConvRing &ring, PipelineState<kConvTiles> &board,
                                          const ConvWork &t, const ConvStage &stage, uint32_t steps_before) {
    const int32_t lane = threadIdx.x % 32;
    volatile ConvTile *to = ring.tile(board.at);
    barrier_wait(ring.read(board.at), board.parity ^ 1);
    if (lane < kUnits) {
        volatile ConvUnit *unit = &to->unit[lane];
        unit->image = t.unit.image, unit->d = t.unit.d, unit->h = t.unit.h, unit->w = t.unit.w;
        unit->h_end = t.unit.h_end, unit->w_end = t.unit.w_end;
    }
    if (lane == 0) {
        to->list = t.list, to->first_step = t.first_step, to->steps = t.steps;
        to->stage = stage.at, to->stage_parity = stage.parity;
        to->step = steps_before % kConvWeights, to->step_parity = steps_before / kConvWeights % 2;
    }
    if (lane < kUnits) barrier_arrive(ring.posted(board.at)); /* each lane, for what it wrote */
    board.next();
}

/* Hands out tiles and loads their pixels. By a warp: a lane has the box of a unit. What is needed of a tile is read while the one before
 * is loaded. */
template <int kUnits>
__device__ __forceinline__ void load_pixels(const ConvProblem &p, const ConvRing &ring,
                                            const CUtensorMap *map) {
    const tartan_cuda_conv_form &f = p.form;
    const int32_t lane = threadIdx.x % 32;
    const bool loads = lane < kUnits;
    uint32_t steps = 0;
    if (p.numbered) wait_for_kernels_before();
    const uint32_t units = count_units(p), tiles = (units + kUnits - 1) / kUnits * (uint32_t)p.lists.busy;
    ConvStage stage;
    PipelineState<kConvTiles> board;
    const auto next_number = [&]() { return lane == 0 ? next_tile_number(p.counters) : 0; };
    ConvWork now = find_work<kUnits>(p, units, tiles, blockIdx.x);
    post_work<kUnits>(ring, board, now, stage, steps);
    if (!p.alone) wait_for_kernels_before(); /* not earlier: the first look-ups only read tables */
    int32_t number = __shfl_sync(~0u, next_number(), 0);
    while (now.list >= 0) {
        steps += (uint32_t)now.steps;
        const ConvWork after = find_work<kUnits>(p, units, tiles, (uint32_t)number);
        const int32_t later = next_number();
        const int4 *table = (const int4 *)p.lists.stage_table + now.first_stage;
        int4 next = make_int4(0, 0, 0, 0);
        if (now.stages > 0) next = __ldg(table);
        for (int32_t s = 0; s < now.stages; s++) {
            const int32_t c = next.x, d = now.unit.d * p.step[0] + next.y,
                          h = now.unit.h * p.step[1] + next.z, w = now.unit.w * p.step[2] + next.w;
            if (s + 1 < now.stages) next = __ldg(table + s + 1);
            barrier_wait(ring.empty(stage.at), stage.parity ^ 1);
            const uint32_t come = f.parts == 2 ? ring.come(stage.at) : ring.full(stage.at);
            if (lane == 0) barrier_expect(come, p.stage_boxed);
            __syncwarp();
            /* For a unit that does not exist, pixels outside the images are loaded, which are zeros. */
            if (loads)
                tensor_load_5d(ring.pixels(f, stage.at) + (uint32_t)(lane * f.unit_bytes), map, come, c, w, h,
                               d, now.unit.image);
            stage.next(f.stages);
        }
        number = __shfl_sync(~0u, later, 0);
        now = after;
        post_work<kUnits>(ring, board, now, stage, steps);
    }
    for (int team = 1; team < kConvTeams; team++) post_work<kUnits>(ring, board, now, stage, steps);
    if (lane == 0) reset_counters<TARTAN_CUDA_COUNTERS>(p.counters);
}

/* The first kCount boxes of a step. By one thread. */
template <int kCount>
__device__ __forceinline__ void load_boxes(const ConvWords &words, uint32_t to, uint32_t bytes,
                                           const CUtensorMap *map, uint32_t full) {
    const uint4 &low = words.boxes[0], &high = words.boxes[1];
    const uint32_t boxes[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
    for (int i = 0; i < kCount; i++)
        tensor_load_3d(to + i * bytes, map, full, 0, (int32_t)(boxes[i] / TARTAN_CUDA_CONV_BOX_PARTS),
                       (int32_t)(boxes[i] % TARTAN_CUDA_CONV_BOX_PARTS));
}

/* By a warp, which also translates the steps to keep the loop of the multiplying warps short: the place where an item's pixels
 * begin becomes the lower half of a descriptor. A lane has an item, since this loop, too, must be shorter than a step's
 * products. */
__device__ __forceinline__ void load_weights(const ConvProblem &p, const ConvRing &ring,
                                             const CUtensorMap *map) {
    const tartan_cuda_conv_form &f = p.form;
    const uint32_t lane = threadIdx.x % 32, stages = (uint32_t)f.stages;
    const uint32_t items_so_far = (2u << lane) - 1; /* of the marks; of lanes that have an item */
    PipelineState<kConvWeights> step;
    PipelineState<kConvTiles> board;
    const uint32_t box_bytes = f.in_place ? (uint32_t)(kConvWeightBytes / f.boxes) : 0;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        volatile const ConvTile *tile = ring.tile(board.at);
        const int32_t list = tile->list, first = tile->first_step, end = first + tile->steps;
        uint32_t stage = tile->stage;
        stage = (stage == 0 ? stages : stage) - 1; /* the one before */
        barrier_arrive(ring.read(board.at));
        board.next();
        ConvWords next = {};
        if (first < end) next = step_words(p, first);
        wait_for_kernels_before(); /* not earlier; from the second tile on there is nothing to wait for */
        let_next_kernel_begin();
        if (list < 0) return;
        for (int32_t s = first; s < end; s++) {
            const ConvWords words = next;
            if (s + 1 < end) next = step_words(p, s + 1);
            const uint32_t full = ring.weights_full(step.at), to = ring.weights(step.at);
            const uint32_t is_short = words.marks >> TARTAN_CUDA_CONV_SHORT & 1,
                           bytes = kConvWeightBytes >> is_short;
            uint32_t mine = stage + __popc(words.marks & items_so_far & (1 << TARTAN_CUDA_CONV_ITEMS) - 1);
            if (mine >= stages) mine -= stages;
            const uint32_t start = in_descriptor(ring.pixels(f, mine)) + (1 << 16) + words.start;
            stage += __popc(words.marks & (1 << TARTAN_CUDA_CONV_ITEMS) - 1);
            if (stage >= stages) stage -= stages;
            barrier_wait(ring.weights_empty(step.at), step.parity ^ 1);
            if (lane < kConvWords)
                shared_store_4(ring.words(step.at) + 4 * lane,
                               lane < TARTAN_CUDA_CONV_ITEMS ? start : words.marks);
            if (lane < kConvWords) barrier_arrive(full); /* each lane, for what it wrote */
            if (elect_one()) {
                barrier_expect(full, bytes);
                if (!f.in_place)
                    bulk_load(to, p.packed + (int64_t)s * kConvWeightBytes, bytes, full);
                else if (f.boxes >> is_short == 8)
                    load_boxes<8>(words, to, box_bytes, map, full);
                else if (f.boxes >> is_short == 4)
                    load_boxes<4>(words, to, box_bytes, map, full);
                else if (f.boxes >> is_short == 2)
                    load_boxes<2>(words, to, box_bytes, map, full);
                else
                    load_boxes<1>(words, to, box_bytes, map, full);
            }
            __syncwarp();
            step.next();
        }
    }
}

/* The bits of f32 x as the sum of two numbers of tf32, within 2^-22 of |x|. A part that is not finite makes sums that are computed
 * again. */
struct ConvParts {
    uint32_t high, low;
};
__device__ __forceinline__ ConvParts divide_factor(uint32_t x) {
    const uint32_t high = near_tf32(__uint_as_float(x));
    return {high, near_tf32(__uint_as_float(x) - __uint_as_float(high))};
}

/* Divides the pixels of each stage, by two warps: first parts take their place, second parts follow behind the boxes. */
__device__ __forceinline__ void divide_pixels(const ConvProblem &p, const ConvRing &ring) {
    const tartan_cuda_conv_form &f = p.form;
    constexpr uint32_t kNext = 16 * kConvDividers, kTogether = 4; /* a warp alone waits for each load */
    const uint32_t thread = threadIdx.x % kConvDividers, bytes = (uint32_t)(f.units * f.unit_bytes);
    PipelineState<kConvTiles> board;
    while (true) {
        barrier_wait(ring.posted(board.at), board.parity);
        volatile const ConvTile *tile = ring.tile(board.at);
        const int32_t list = tile->list;
        ConvStage stage;
        stage.at = tile->stage, stage.parity = tile->stage_parity;
        barrier_arrive(ring.read(board.at));
        board.next();
        if (list < 0) return;
        for (int32_t n = p.lists.stages_of[list + 1] - p.lists.stages_of[list]; n > 0; n--) {
            const uint32_t to = ring.pixels(f, stage.at), second = to + (uint32_t)f.part_bytes;
            barrier_wait(ring.come(stage.at), stage.parity);
            for (uint32_t first = 16 * thread; first < bytes; first += kTogether * kNext) {
                uint4 x[kTogether];
#pragma unroll
                for (uint32_t i = 0; i < kTogether; i++)
                    if (first + i * kNext < bytes) x[i] = shared_load_16(to + first + i * kNext);
#pragma unroll
                for (uint32_t i = 0; i < kTogether; i++) {
                    if (first + i * kNext >= bytes) break;
                    const ConvParts a = divide_factor(x[i].x), b = divide_factor(x[i].y),
                                    c = divide_factor(x[i].z), d = divide_factor(x[i].w);
                    shared_store_16(to + first + i * kNext, make_uint4(a.high, b.high, c.high, d.high));
                    shared_store_16(second + first + i * kNext, make_uint4(a.low, b.low, c.low, d.low));
                }
            }
            shared_fence_async();
            barrier_arrive(ring.full(stage.at));
            stage.next(f.stages);
        }
    }
}

} // namespace

} // namespace tartan_cuda

#endif
