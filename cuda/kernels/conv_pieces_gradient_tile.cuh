/* SPDX-License-Identifier: Apache-2.0
 * The stages of conv_filter_gradient_pieces: positions, and copies of x and y into shared memory. */
#ifndef TARTAN_CUDA_CONV_PIECES_GRADIENT_TILE_CUH
#define TARTAN_CUDA_CONV_PIECES_GRADIENT_TILE_CUH

#include "kernels/conv_pieces.cuh"

namespace tartan_cuda {
namespace conv_filter_gradient_pieces {
namespace {

constexpr int kThreads = TARTAN_CUDA_PIECES_THREADS, kRow = TARTAN_CUDA_PIECES_ROW;

struct Args {
    tartan_cuda_conv_filter_gradient p;
    PieceLists list;
    PieceImage in, out; /* images or copies of them whose channels are slots; `out` by groups, at out_pitch */
    int64_t out_pitch, out_slots;
    int32_t out_piece, stride[TARTAN_I_DIMS];
    int32_t out_bytes; /* of a piece of y */
    tartan_cuda_row_index rows;
    tartan_cuda_channel_lists row_channels, col_channels;
    Windows windows;
    bool restricted;          /* to the windows of y, which do not overlap */
    int64_t positions, share; /* all; of a share */
    int32_t splits, steps;    /* shares; steps of all lists */
    int32_t weights;          /* stored */
    void *sums;               /* [splits][steps][columns of a step][width] */
};

/* Positions of a stage, rows of x and y. */
template <class Products, int kGroup_> struct Form {
    static constexpr int kElement = (int)sizeof(typename Products::Element), kGroup = kGroup_;
    static constexpr int kColumns = 128; /* of x: a step */
    static constexpr int kDepth = kElement == 2 ? 64 : kElement == 4 ? 32 : 16;
    /* Rows begin in different banks, so that fragments are loaded without conflicts. */
    static constexpr int kPad = kElement == 2 ? 16 : 32;
    static constexpr int kPitchX = kColumns * kElement + kPad, kPitchY = kGroup * kElement + kPad;
    static constexpr int kStage = kDepth * (kPitchX + kPitchY), kStages = kGroup == 128 ? 2 : 3;
    static constexpr int kCtas = kElement == 8 ? 1 : 2;                   /* on an SM */
    static constexpr int kHigh = kGroup >= 64 ? 2 : 1, kWide = 8 / kHigh; /* warps */
    static constexpr int kRows = kGroup / kHigh / 16, kCols = kColumns / kWide / 8;
    static constexpr int kShared = kStages * kStage;
};

constexpr int32_t kNowhere = INT32_MIN; /* no position of y */

/* Positions of y of a stage: the one of x that pieces shift (d, h, w, its first piece), and the first piece of y. */
template <int kDepth> struct Spots {
    int4 in[kDepth];
    int32_t out[kDepth];
};

template <int kDepth>
__device__ __forceinline__ void find_spot(const Args &a, int64_t number, int64_t end, Spots<kDepth> &s,
                                          int i) {
    s.in[i] = make_int4(INT32_MIN, INT32_MIN, INT32_MIN, 0);
    s.out[i] = kNowhere;
    if (number >= end) return;
    int32_t image, at[TARTAN_I_DIMS];
    if (a.restricted) {
        const Position x = window_position(a.windows, number, a.p.out.size);
        if (x.image < 0) return;
        image = (int32_t)x.image;
        for (int d = 0; d < TARTAN_I_DIMS; d++) at[d] = (int32_t)x.at[d];
    } else {
        uint32_t left = (uint32_t)number;
        for (int d = TARTAN_I_DIMS - 1; d >= 0; d--) {
            at[d] = 0;
            if (a.out.size[d] == 1) continue;
            at[d] = (int32_t)(left % a.out.size[d]);
            left /= a.out.size[d];
        }
        image = (int32_t)left;
    }
    s.out[i] = image * a.out.entry + a.out.offset(make_int4(at[0], at[1], at[2], 0));
    int4 in = make_int4(at[0] * a.stride[0], at[1] * a.stride[1], at[2] * a.stride[2], 0);
    in.w = image * a.in.entry + a.in.offset(in);
    s.in[i] = in;
}

template <class F, int kBytes>
__device__ __forceinline__ void load_x(const PieceImage &x, const Spots<F::kDepth> &s, int4 piece,
                                       uint32_t to) {
    constexpr int kPieces = F::kColumns * F::kElement / kBytes, kApart = kThreads / kPieces;
    const int c = threadIdx.x % kPieces, first = threadIdx.x / kPieces;
    const int32_t offset = x.offset(piece) + piece.w;
    const uint32_t spots = shared_offset(s.in + first);
    to += first * F::kPitchX + c * kBytes;
#pragma unroll
    for (int i = 0; i < F::kDepth / kApart; i++) {
        const int4 spot = shared_load_int4(spots + i * kApart * (uint32_t)sizeof(int4));
        const bool there = x.has(spot, piece);
        copy_async<kBytes>(to + i * kApart * F::kPitchX,
                           x.data + (int64_t)(there ? spot.w + offset : 0) * kBytes, there ? kBytes : 0);
    }
}

/* `first`: piece of a position. */
template <class F, int kBytes>
__device__ __forceinline__ void load_y(const PieceImage &y, const Spots<F::kDepth> &s, int32_t first,
                                       int32_t slots, uint32_t to) {
    constexpr int kPieces = F::kGroup * F::kElement / kBytes, kAll = F::kDepth * kPieces,
                  kUnit = kBytes / F::kElement;
    if constexpr (kAll >= kThreads && kThreads % kPieces == 0) {
        constexpr int kApart = kThreads / kPieces;
        const int c = threadIdx.x % kPieces, row = threadIdx.x / kPieces;
        const bool exists = c * kUnit < slots;
        to += row * F::kPitchY + c * kBytes;
#pragma unroll
        for (int i = 0; i < F::kDepth / kApart; i++) {
            const int32_t at = s.out[row + i * kApart];
            const bool there = exists && at != kNowhere;
            copy_async<kBytes>(to + i * kApart * F::kPitchY,
                               y.data + (int64_t)(there ? at + first + c : 0) * kBytes, there ? kBytes : 0);
        }
    } else {
        for (int e = threadIdx.x; e < kAll; e += kThreads) {
            const int row = e / kPieces, c = e % kPieces;
            const int32_t at = s.out[row];
            const bool there = c * kUnit < slots && at != kNowhere;
            copy_async<kBytes>(to + row * F::kPitchY + c * kBytes,
                               y.data + (int64_t)(there ? at + first + c : 0) * kBytes, there ? kBytes : 0);
        }
    }
}

} // namespace
} // namespace conv_filter_gradient_pieces
} // namespace tartan_cuda

#endif
