/* SPDX-License-Identifier: Apache-2.0
 * All gradients of normalisation along long lines, in one reading. A CTA of a cluster has the same part of all its lines, so gain stays there,
 * and what belongs to gain and bias is added up in registers.
 *
 * Lines that begin at different addresses modulo 16 are cut differently. Such a cluster takes lines that begin alike one after the other, and
 * begins anew where the next ones begin elsewhere. */
#include "kernels/line_held.cuh"
#include "kernels/norms_gradient_flow.cuh"
#include "kernels/norms_held.h"

namespace tartan_cuda {
namespace {

template <typename T, bool RAGGED> using HeldGradient = Held<T, 1, 512, 4, RAGGED, 2>;

/* Whether the gradient of a line is computed after the sums of the next one, so that no thread waits for sums, and gain is in registers: for
 * f32, whose threads have 16 numbers. Else gain is in shared memory. */
template <typename T> constexpr bool IS_HELD_LATE = sizeof(T) == 4;
template <typename T>
constexpr int LINES_AT_ONCE = IS_HELD_LATE<T> ? 3 : 2; /* (the one before,) the present one and the next */

struct WarpTerms {
    float of_g, of_gz, none[2];
};

/* Line `i` in the order of the places modulo `period`. */
__device__ __forceinline__ int64_t by_place(uint32_t i, uint32_t lines, uint32_t period) {
    const uint32_t each = lines / period, longer = lines % period, of_longer = longer * (each + 1),
                   length = i < of_longer ? each + 1 : each, rest = i < of_longer ? i : i - of_longer,
                   place = rest / length + (i < of_longer ? 0 : longer);
    return place + (int64_t)(rest % length) * period;
}

/* partial: rows of sums of gain and bias, [clusters][rows][2][length], or NULL. */
template <typename T, bool RAGGED>
__global__ void __launch_bounds__(HeldGradient<T, RAGGED>::TEAM, 1)
    norm_gradient_held(const __grid_constant__ tartan_cuda_norm_gradient of, const Clusters c, int64_t rows,
                       float *partial) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    using Lines = HeldGradient<T, RAGGED>;
    constexpr int EACH = Lines::EACH, UNITS = Lines::UNITS, N = UNITS * EACH, AHEAD = 2;
    constexpr bool LATE = IS_HELD_LATE<T>;
    extern __shared__ uint4 memory[];
    __shared__ typename Lines::Shared shared[1];
    float *const gains = (float *)memory; /* of the part, unless LATE */
    const tartan_cuda_norm &p = of.in;
    const double per_element = 1.0 / (double)p.length;
    Lines held(shared, memory + (LATE ? 0 : c.per_cta / 4), c, p.length);
    const int64_t cluster = held.first_line(), clusters = held.step();
    const int64_t first = RAGGED ? cluster * p.lines / clusters : 0,
                  count = RAGGED ? (cluster + 1) * p.lines / clusters - first
                                 : (p.lines - cluster - 1) / clusters + 1;
    const auto line_at = [&](int64_t i) {
        return RAGGED ? by_place((uint32_t)(first + i), (uint32_t)p.lines, EACH) : cluster + i * clusters;
    };
    const auto begin_in = [&](int array, int64_t line) {
        return (T *)p.sweep.array[array].data + begin_of(p.sweep, array, line);
    };
    const auto load = [&](int64_t i, int32_t stage) {
        if (i >= count) return;
        const int64_t line = line_at(i);
        held.load({begin_in(X, line), begin_in(Y_GRAD, line)}, stage);
    };
    held.begin(AHEAD, load);
    typename Lines::Part part = {INT32_MIN, 0, 0, -1};
    float gain[LATE ? N : 1], to_gain[N], to_bias[N], edge_gain = 0, edge_to_gain = 0, edge_to_bias = 0;
    const auto clear = [&] {
        EACH_OF(N) to_gain[i] = to_bias[i] = 0;
        edge_to_gain = edge_to_bias = 0;
    };
    int64_t row = 0;
    const auto flush = [&] {
        float *const to = partial + (cluster * rows + row++) * 2 * p.length;
        held.each_unit(part, [&](int u, int32_t number) {
            float *const mine = to + part.units + (number + held.thread()) * EACH;
            const float *const gains = &to_gain[u * EACH], *const biases = &to_bias[u * EACH];
            if constexpr (RAGGED) {
                EACH_OF(EACH) mine[i] = gains[i];
                EACH_OF(EACH) mine[p.length + i] = biases[i];
            } else {
                EACH_OF(EACH / 4) {
                    const float *const a = gains + 4 * i, *const b = biases + 4 * i;
                    ((float4 *)mine)[i] = make_float4(a[0], a[1], a[2], a[3]);
                    ((float4 *)(mine + p.length))[i] = make_float4(b[0], b[1], b[2], b[3]);
                }
            }
        });
        if (part.edge >= 0) to[part.edge] = edge_to_gain, to[p.length + part.edge] = edge_to_bias;
        clear();
    };
    const auto begin_part = [&](const typename Lines::Part &of_lines) {
        part = of_lines;
        clear();
        if constexpr (LATE) {
            EACH_OF(N) gain[i] = 0;
            held.each_unit(part, [&](int u, int32_t number) {
                EACH_OF(EACH)
                gain[u * EACH + i] =
                    line_number(p.gain, 1.f, part.units + (number + held.thread()) * EACH + i);
            });
        } else {
            __syncthreads(); /* the gains before were read */
            for (int32_t i = held.thread(); i < c.per_cta; i += Lines::TEAM) {
                const int64_t at = (int64_t)part.first + i;
                gains[i] = at >= 0 && at < p.length ? line_number(p.gain, 1.f, at) : 0.f;
            }
            __syncthreads();
        }
        if (part.edge >= 0) edge_gain = line_number(p.gain, 1.f, part.edge);
    };
    /* The numbers of a unit: z, y_grad, and y_grad times gain. */
    const auto numbers_of = [&](int32_t stage, int u, int32_t number, const Normal<T> &normal,
                                float(&z)[EACH], float(&slope)[EACH], float(&scaled)[EACH]) {
        const Unit<T> x = held.units_in(stage, 0, part)[number], g = held.units_in(stage, 1, part)[number];
        if constexpr (LATE) {
            EACH_OF(EACH) scaled[i] = gain[u * EACH + i];
        } else {
            const float4 *const from =
                (const float4 *)(gains + (part.units - part.first) + (number + held.thread()) * EACH);
            EACH_OF(EACH / 4) {
                const float4 four = from[i];
                scaled[4 * i] = four.x, scaled[4 * i + 1] = four.y, scaled[4 * i + 2] = four.z,
                           scaled[4 * i + 3] = four.w;
            }
        }
        EACH_OF(EACH) z[i] = normal(x.get(i)), slope[i] = g.get(i), scaled[i] *= slope[i];
    };
    const auto fetch = [&](int64_t line) { /* to L1 */
                                           held.fetch_edge(begin_in(X, line));
                                           held.fetch_edge(begin_in(Y_GRAD, line));
    };
    struct Pending {
        int64_t line;
        int32_t stage;
        Stats<float> stats;
        float edge_z, edge_g;
    };
    /* The gradient of a line whose sums are on their way. */
    const auto write = [&](Pending it) {
        held.receive();
        float sums[2] = {0, 0};
        held.template each_packet<WarpTerms>(
            [&](const WarpTerms &of_warp) { sums[0] += of_warp.of_g, sums[1] += of_warp.of_gz; });
        const double sum[2] = {(double)sum_of_lanes(sums[0]), (double)sum_of_lanes(sums[1])};
        if (p.sweep.array[X_GRAD].data == nullptr) return;
        const Gradient<float> gradient = gradient_of(p, per_element, sum, it.stats.rstd);
        const Normal<T> normal(it.stats);
        T *const x_grad = begin_in(X_GRAD, it.line);
        Unit<T> *const to = held.units_of(x_grad, part);
        held.each_unit(part, [&](int u, int32_t number) {
            float z[EACH], slope[EACH], y[EACH];
            numbers_of(it.stage, u, number, normal, z, slope, y);
            gradient.template operator()<EACH>(z, y);
            Unit<T> out;
            out.set(y);
            to[number] = out;
        });
        if (RAGGED && part.edge >= 0) {
            float y = it.edge_g * edge_gain;
            gradient.template operator()<1>(&it.edge_z, &y);
            x_grad[part.edge] = tartan_cuda_to<T>(y);
        }
    };
    const auto stats_at = [&](int64_t line) { return stats_of<float>(p, begin_of(p.sweep, RSTD, line)); };
    int64_t line = line_at(0);
    Stats<float> stats = stats_at(line);
    int32_t of_row = 0;
    Pending last = {};
    bool pending = false;
    fetch(line);
    if constexpr (!RAGGED) begin_part(held.part_of(nullptr));
    for (int64_t i = 0; i < count; i++) {
        Pending now = {line, held.stage(), stats, 0, 0};
        const Normal<T> normal(stats);
        if constexpr (RAGGED) {
            const T *const x = begin_in(X, line), *const g = begin_in(Y_GRAD, line);
            const typename Lines::Part here = held.part_of(x);
            if (here.first != part.first) {
                if (pending) write(last);
                if (i > 0 && partial != nullptr) flush();
                pending = false, of_row = 0;
                begin_part(here);
            }
            if (part.edge >= 0)
                now.edge_z = normal(tartan_cuda_to<float>(x[part.edge])),
                now.edge_g = tartan_cuda_to<float>(g[part.edge]);
        }
        if (i + 1 < count) {
            line = line_at(i + 1);
            stats = stats_at(line);
            fetch(line);
        }
        Terms<float> terms;
        held.wait();
        held.each_unit(part, [&](int u, int32_t number) {
            float z[EACH], slope[EACH], scaled[EACH];
            numbers_of(now.stage, u, number, normal, z, slope, scaled);
            EACH_OF(EACH) {
                const int k = u * EACH + i;
                to_gain[k] = fmaf(slope[i], z[i], to_gain[k]);
                to_bias[k] += slope[i];
                terms.add(i, z[i], scaled[i]);
            }
        });
        if (RAGGED && part.edge >= 0) {
            edge_to_gain = fmaf(now.edge_g, now.edge_z, edge_to_gain);
            edge_to_bias += now.edge_g;
            terms.add(0, now.edge_z, now.edge_g * edge_gain);
        }
        float mine[2] = {};
        terms.end(mine);
        held.send(packed(WarpTerms{sum_of_lanes(mine[0]), sum_of_lanes(mine[1]), {}}));
        if constexpr (LATE) {
            if (pending) write(last);
            pending = true, last = now;
        } else {
            write(now);
        }
        held.leave(i, AHEAD, load);
        if (++of_row == LINES_OF_ROW && partial != nullptr) flush(), of_row = 0;
    }
    if (pending) write(last);
    while (partial != nullptr && row < rows) flush(); /* sums of no lines are 0 */
    held.end();
#endif
}

template <typename T>
tartan_status run(const char *function, tartan_cuda_queue *queue, const tartan_cuda_norm_gradient &p,
                  bool *done) {
    using Lines = HeldGradient<T, true>;
    const tartan_cuda_norm &in = p.in;
    const bool ragged = is_ragged(in.sweep, {X, Y_GRAD, X_GRAD}, in.length);
    const auto kernel = ragged ? norm_gradient_held<T, true> : norm_gradient_held<T, false>;
    size_t shared = 0;
    const Clusters c = held_by<Lines>(queue->chip, in.length, in.lines, ragged, 2, LINES_AT_ONCE<T>,
                                      LINES_AT_ONCE<T>, 0, IS_HELD_LATE<T> ? 0 : sizeof(float), &shared);
    int32_t clusters = 0;
    PASS(held_at_once<Lines>(function, queue, kernel, c, shared, in.lines, &clusters));
    *done = clusters > 0;
    if (!*done) return TARTAN_OK;
    /* A ragged cluster has some lines of each of `places` beginnings. */
    const int64_t most = (in.lines - 1) / clusters + 1,
                  of_place = std::max<int64_t>(in.lines / Lines::EACH, 1),
                  places = ragged ? std::min<int64_t>((most - 1) / of_place + 2, Lines::EACH) : 1,
                  rows = (most - 1) / LINES_OF_ROW + places;
    void *partial = nullptr;
    const bool sums = p.gain_grad.data != nullptr || p.bias_grad.data != nullptr;
    if (sums)
        PASS(tartan_cuda_scratch(function, queue, clusters * rows * 2 * in.length * (int64_t)sizeof(float),
                                 &partial));
    tartan_status status =
        launch_held<Lines>(function, queue, kernel, c, shared, clusters, p, c, rows, (float *)partial);
    if (sums && status == TARTAN_OK)
        status = launch_rows(function, queue, &p, (const float *)partial, clusters * rows);
    if (partial != nullptr) tartan_cuda_scratch_free(queue, partial);
    return status;
}

} // namespace
} // namespace tartan_cuda

tartan_status tartan_cuda_norm_gradient_held(const char *function, tartan_cuda_queue *queue,
                                             const tartan_cuda_norm_gradient *p, bool *done) {
    using namespace tartan_cuda;
    const tartan_cuda_sweep &sweep = p->in.sweep;
    *done = false;
    if (queue->chip.major != 9 || queue->chip.minor != 0 || p->in.lines == 0) return TARTAN_OK;
    if (!lie_alike(sweep, {X, Y_GRAD, X_GRAD})) return TARTAN_OK;
    /* Lines along several axes do not begin alike in turn. */
    if (sweep.axes[TARTAN_CUDA_KEPT].ndim != 1 && is_ragged(sweep, {X, Y_GRAD, X_GRAD}, p->in.length))
        return TARTAN_OK;
    return by_dtype_of_clusters(sweep.array[X].dtype,
                                [&](auto tag) { return run<decltype(tag)>(function, queue, *p, done); });
}
