/* SPDX-License-Identifier: Apache-2.0
 * What both passes of attention on the CPU share.
 *
 * The unit of work is one row of blocks of one head: all queries of it, as the left factor of products, against chunks of
 * its stored keys. A chunk is as many blocks as have a few hundred keys, so its scores stay in cache; where
 * chunks begin depends on the layout alone, and so do the bits of the results. In a row of scores the keys of the
 * chunk's blocks follow each other without gaps. */
#ifndef TARTAN_BACKEND_CPU_ATTENTION_H
#define TARTAN_BACKEND_CPU_ATTENTION_H

#include "backend/attention.h"
#include "backend/cpu.h"

enum {
    TARTAN_I_ATTENTION_KEYS = 256, /* most keys of any chunk; one block may have as many */
    TARTAN_I_ATTENTION_WORDS = TARTAN_I_ATTENTION_KEYS / 32,
    TARTAN_I_ATTENTION_PACKED =
        1 << 20, /* bytes packed at a time for each thread, unless one kv head has more */
};

/* ---- Packed factors ---- */

/* How a block of tokens takes part in products. */
typedef enum tartan_i_cpu_side {
    TARTAN_I_ACROSS,      /* right factor, columns are tokens: d is contracted */
    TARTAN_I_ALONG,       /* right factor, columns are d: tokens are contracted */
    TARTAN_I_LEFT,        /* left factor, rows are tokens: d is contracted */
    TARTAN_I_LEFT_TURNED, /* left factor, rows are d: tokens are contracted */
    TARTAN_I_SPAN_KEYS,   /* as LEFT, by spans, tile after tile in the order in which stages read them */
    TARTAN_I_SPAN_VALUES, /* as LEFT_TURNED, by spans */
} tartan_i_cpu_side;

/* An array of [batch, heads, tokens, d] as a factor of products, by blocks of tokens. */
typedef struct tartan_i_cpu_factor {
    const tartan_array *array;
    tartan_i_cpu_side side;
    bool in_place;
    int64_t block, blocks;
    int64_t vectors;  /* of the columns of a block, on the right */
    int64_t units;    /* of a block, contracted */
    tartan_i_fit fit; /* of a block, on the left */
    int64_t bytes;    /* of a packed entry, which is one head of one batch entry; 0: in place */
    int64_t first;    /* the first entry that is packed */
    char *packed;
} tartan_i_cpu_factor;

/* ---- The plan ---- */

typedef struct tartan_i_cpu_attention {
    const tartan_context *context;
    const tartan_i_attention *in;
    const tartan_layout *layout;     /* of the last mask, if it is dynamic */
    const tartan_i_columns *columns; /* of that layout, once there is memory */
    tartan_i_kernels k;
    bool pairs;                            /* products read pairs of 16-bit numbers */
    int64_t heads, kv_heads, group, d, dv; /* dv: elements of a value; d: of a query and a key */
    int64_t entries;                       /* batch entries times kv heads */
    int64_t block_rows, block_cols;
    tartan_i_fit fit;             /* of a row of blocks as left factor, with d contracted */
    int64_t scores_row, sums_row; /* strides of rows of scores, and of sums over d, in reals */
    double work;                  /* operations */
    uint32_t drop;                /* see tartan_i_cpu_attention_drop */
    int64_t least_round;
    int64_t round;        /* entries whose factors are packed at a time */
    int64_t first, count; /* of the round at work */
    tartan_i_cpu_team team;
} tartan_i_cpu_attention;

/* Plans for the layout and operands of `in`, without factors. */
tartan_i_cpu_attention tartan_i_cpu_attention_plan(const tartan_context *context,
                                                   const tartan_i_attention *in);

/* `in` with a layout of taller blocks, where the rows of blocks of one row allow that; else as it is. Only for passes whose results
 * belong to queries alone. Errors: MEMORY. */
tartan_status tartan_i_cpu_attention_tall(const tartan_i_attention *in, tartan_i_attention *out);

/* A random word below this drops its weight; 0: there is no dropout. */
static inline uint32_t tartan_i_cpu_attention_drop(const tartan_i_attention *in) {
    return (uint32_t)(in->dropout * 0x1p32);
}

/* The stride of rows of n scores or sums: they take whole vectors of any instruction set, and the last strip of a block
 * writes past its keys. */
static inline int64_t tartan_i_cpu_attention_row_of(int64_t n) {
    return (tartan_i_ceil_div(n, TARTAN_I_MAX_LANES) + 1) * TARTAN_I_MAX_LANES;
}

/* Makes a plan use other kernels. */
void tartan_i_cpu_attention_use(tartan_i_cpu_attention *p, tartan_i_kernels kernels);

tartan_i_cpu_factor tartan_i_cpu_factor_of(const tartan_i_cpu_attention *p, const tartan_array *array,
                                           int64_t block, tartan_i_cpu_side side);

/* A block of a factor on the left. */
const char *tartan_i_cpu_factor_left(const tartan_i_cpu_factor *f, int64_t entry, int64_t block,
                                     const tartan_i_kernels *k);

/* Sets the length of rounds, gets memory for the factors of one, and counters for a team. */
tartan_status tartan_i_cpu_attention_memory(tartan_i_cpu_attention *p, tartan_i_cpu_factor *factors,
                                            int nfactors);

/* Packs the factors of entries first, first + 1, ..., up to a round of them. */
void tartan_i_cpu_attention_pack(tartan_i_cpu_attention *p, tartan_i_cpu_factor *factors, int nfactors,
                                 int64_t first);

/* Runs `task` on workers that take from `tasks` equal tasks, through p->team. */
void tartan_i_cpu_attention_share(tartan_i_cpu_attention *p, int64_t tasks, double work, tartan_task task,
                                  void *data);

/* The next `bytes` of a worker's memory, on a cache line boundary. With `base` NULL it only advances *at. */
static inline void *tartan_i_cpu_attention_take(char *base, int64_t *at, int64_t bytes) {
    char *here = base != NULL ? base + *at : NULL;
    *at += tartan_i_ceil_div(bytes, 64) * 64;
    return here;
}

/* ---- Left factors and products ---- */

typedef struct tartan_i_left {
    const void *a;
    int64_t row, col; /* strides, in units */
} tartan_i_left;

/* The tiles that a thread is set up for. */
typedef struct tartan_i_tiling {
    int64_t rows, units;
} tartan_i_tiling;

/* Sets the thread up for left factors of this fit. */
void tartan_i_cpu_attention_tile(const tartan_i_product *product, tartan_i_tiling *tiling,
                                 const tartan_i_fit *fit);

/* sums (+)= left times blocks of `right`, of entry `entry`. Each term names one by its number b. An across factor takes one
 * term. `rows`: of the left factor, without padding to whole tiles. */
void tartan_i_cpu_factor_product(const tartan_i_cpu_attention *p, tartan_i_tiling *tiling,
                                 const tartan_i_fit *fit, const tartan_i_left *left, int64_t rows,
                                 const tartan_i_cpu_factor *right, int64_t entry, tartan_i_term *terms,
                                 int64_t nterms, char *sums, int64_t sums_row, bool first);

/* `rows` rows of an array from token `token` on, as a left factor with d contracted: in place, or in `room`. */
tartan_i_left tartan_i_cpu_attention_left(const tartan_i_cpu_attention *p, const tartan_array *array,
                                          int64_t entry, int64_t token, int64_t rows, char *room);
int64_t tartan_i_cpu_attention_left_bytes(const tartan_i_cpu_attention *p, const tartan_i_fit *fit);

/* Element (token, 0) of an entry of an array. */
char *tartan_i_cpu_attention_at(const tartan_array *array, int64_t entry, int64_t token);

/* ---- Chunks of keys ---- */

typedef struct tartan_i_chunk {
    int64_t blocks, keys;
    bool partial; /* some query does not see some key of it */
    int64_t ids[TARTAN_I_ATTENTION_KEYS];
    int64_t cols[TARTAN_I_ATTENTION_KEYS];   /* block columns */
    int64_t at[TARTAN_I_ATTENTION_KEYS + 1]; /* where the keys of a block begin in a row of scores */
} tartan_i_chunk;

/* The row pointers of an entry, which is batch * heads + head. */
static inline const int64_t *tartan_i_cpu_attention_rows(const tartan_i_cpu_attention *p, int64_t entry) {
    const int64_t head = tartan_i_attention_layout_head(p->in, p->layout, entry);
    return p->layout->row_pointers + head * p->layout->grid_rows;
}

/* Takes the next blocks of a row of blocks, from position *at before `end` on, and skips blocks that no query sees.
 * False if there are none left. */
bool tartan_i_cpu_attention_chunk(const tartan_i_cpu_attention *p, int64_t block_row, int64_t *at,
                                  int64_t end, tartan_i_chunk *out);

/* A chunk of one block; false if no query of its row sees it. */
bool tartan_i_cpu_attention_single(const tartan_i_cpu_attention *p, int64_t block_row, int64_t id,
                                   tartan_i_chunk *out);

/* Which keys of a chunk the query sees, as bits of `words`; NULL: all. */
const uint32_t *tartan_i_cpu_attention_words(const tartan_i_cpu_attention *p, const tartan_i_chunk *chunk,
                                             int64_t query, uint32_t words[TARTAN_I_ATTENTION_WORDS]);

/* The first query of a row of blocks, counted from its start, that sees a key if it is not masked in its block. */
int64_t tartan_i_cpu_attention_first(const tartan_i_cpu_attention *p, int64_t block_row, int64_t key);

/* The offset of an entry in a dense bias. */
static inline int64_t tartan_i_cpu_attention_plane(const tartan_i_cpu_attention *p, const tartan_array *bias,
                                                   int64_t entry) {
    return (bias->shape[0] > 1 ? entry / p->heads * bias->strides[0] : 0) +
           (bias->shape[1] > 1 ? entry % p->heads * bias->strides[1] : 0);
}

/* What bias adds to a score of an entry, which is batch * heads + head. */
double tartan_i_cpu_attention_bias_of(const tartan_i_cpu_attention *p, int64_t entry, int64_t id,
                                      int64_t query, int64_t key);

/* Turns a row of products into scores / the returned scale, with softcap and bias. `room`: for a row. `caps`: NULL or room for a row,
 * which gets the results of softcap / softcap if there is one. */
double tartan_i_cpu_attention_score(const tartan_i_cpu_attention *p, const tartan_i_chunk *chunk,
                                    int64_t entry, int64_t query, void *row, void *room, void *caps);

/* The scale that it returns. */
double tartan_i_cpu_attention_scale(const tartan_i_cpu_attention *p);

/* exp by the table's kernel, so that it has the same bits everywhere, of x in its dtype. */
double tartan_i_cpu_attention_exp(const tartan_i_kernels *k, double x);

/* Adds the sink of a head to a query's sum of weights exp(score - *most), and raises *most to the sink. Returns the factor
 * for what was summed up with the old *most. */
double tartan_i_cpu_attention_sink(const tartan_i_kernels *k, const tartan_array *sinks, int64_t head,
                                   double *most, double *total);

/* Whether dropout keeps weights: bits for the keys of a chunk. `entry` is batch * heads + head. */
void tartan_i_cpu_attention_kept(const tartan_i_cpu_attention *p, const tartan_i_chunk *chunk, int64_t entry,
                                 int64_t query, uint32_t words[TARTAN_I_ATTENTION_WORDS]);

/* Zeros the elements of a row whose bits are not set. */
void tartan_i_cpu_attention_clear(const tartan_i_cpu_attention *p, const uint32_t *words, int64_t n,
                                  void *row);

/* ---- Products of chunks ---- */

/* scores = left times the keys of a chunk, of an across factor. */
void tartan_i_cpu_attention_across(const tartan_i_cpu_attention *p, tartan_i_tiling *tiling,
                                   const tartan_i_left *left, int64_t rows, const tartan_i_cpu_factor *right,
                                   int64_t entry, const tartan_i_chunk *chunk, char *scores);

/* sums (+)= weights, in rows as scores, times the tokens of a chunk. */
void tartan_i_cpu_attention_along(const tartan_i_cpu_attention *p, tartan_i_tiling *tiling,
                                  const tartan_i_chunk *chunk, int64_t rows, const char *weights,
                                  const tartan_i_cpu_factor *right, int64_t entry, char *sums, bool first);

#endif
