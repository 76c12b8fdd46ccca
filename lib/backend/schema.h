/* SPDX-License-Identifier: Apache-2.0
 * Operations as data. lib/ops/schema/generate_c.py writes these tables from the .def files beside it. */
#ifndef TARTAN_BACKEND_SCHEMA_H
#define TARTAN_BACKEND_SCHEMA_H

#include "backend/operation.h"
#include "tartan/operation.h"

enum { TARTAN_I_MAX_ARGUMENTS = 20, TARTAN_I_MAX_NAMES = 8, TARTAN_I_MAX_DIM_ITEMS = 6 };

typedef enum tartan_i_usage { TARTAN_I_IN, TARTAN_I_OUT, TARTAN_I_UPDATE } tartan_i_usage;

/* Which dtypes an argument may have; lib/ops/schema/schema.py says what each letter means. */
typedef enum tartan_i_dtype_rule {
    TARTAN_I_DTYPE_NONE,
    TARTAN_I_DTYPE_T,
    TARTAN_I_DTYPE_P,
    TARTAN_I_DTYPE_O,
    TARTAN_I_DTYPE_S,
    TARTAN_I_DTYPE_L,
    TARTAN_I_DTYPE_M,
    TARTAN_I_DTYPE_R,
    TARTAN_I_DTYPE_C,
    TARTAN_I_DTYPE_F64,
    TARTAN_I_DTYPE_U8,
    TARTAN_I_DTYPE_I,
} tartan_i_dtype_rule;

/* One item of a shape. */
typedef enum tartan_i_dim_kind {
    TARTAN_I_DIM_NAME,      /* a size; `index` is the number of its name */
    TARTAN_I_DIM_REST,      /* any number of dimensions */
    TARTAN_I_DIM_CONSTANT,  /* `index` itself */
    TARTAN_I_DIM_BROADCAST, /* the broadcast shape of the runs `index` and `other` */
    TARTAN_I_DIM_BLOCKS,    /* of the layout of argument `index`; and so on */
    TARTAN_I_DIM_ROWS,
    TARTAN_I_DIM_COLS,
    TARTAN_I_DIM_HEADS,
} tartan_i_dim_kind;

typedef struct tartan_i_dim {
    tartan_i_dim_kind kind;
    int32_t index, other;
} tartan_i_dim;

typedef struct tartan_i_alternative {
    int32_t count, single; /* the number of items, and of items that are one dimension each */
    tartan_i_dim dims[TARTAN_I_MAX_DIM_ITEMS];
} tartan_i_alternative;

enum { TARTAN_I_MAX_ALTERNATIVES = 3 };

/* A shape: one of several. */
typedef struct tartan_i_shape_rule {
    int32_t like;         /* the argument whose shape (array) or layout (matrix) it has; -1: none */
    bool computed;        /* by the function of the entry */
    int32_t alternatives; /* 0: any shape */
    tartan_i_alternative alternative[TARTAN_I_MAX_ALTERNATIVES];
} tartan_i_shape_rule;

typedef struct tartan_i_argument {
    const char *name;
    int32_t kind; /* tartan_operand_kind */
    tartan_i_usage use;
    bool optional, stays, variable; /* stays: no dynamic layout; variable: blocks may differ in size */
    tartan_i_dtype_rule dtype;
    int32_t gradient_of; /* the place, from 1, of the input whose gradient an output is; 0: none */
    uint32_t may_be;     /* bit i: may share the memory of argument i */
    uint32_t old_arguments, old_options; /* bit i: uses old values if argument or option i is given */
    size_t member;                       /* its offset in the struct of the operation */
    const char *shape;                   /* as it is written, for messages */
    tartan_i_shape_rule rule;
} tartan_i_argument;

typedef enum tartan_i_option_kind {
    TARTAN_I_OPTION_REAL,    /* double */
    TARTAN_I_OPTION_WHOLE,   /* int64_t */
    TARTAN_I_OPTION_FLAG,    /* bool */
    TARTAN_I_OPTION_WORD,    /* int32_t, the number of the word */
    TARTAN_I_OPTION_SIZES,   /* tartan_i_sizes */
    TARTAN_I_OPTION_WINDOWS, /* tartan_i_windows, as tartan_i_windows_read leaves them */
} tartan_i_option_kind;

typedef struct tartan_i_option_rule {
    const char *name;
    tartan_i_option_kind kind;
    size_t member;
    bool positional; /* in C an argument of its own */
    bool as_real;    /* of a flag: the member is a double */
    double value;    /* the default */
    double low, high;
    bool above, below; /* low, high themselves are not allowed */
    const char *range; /* for messages: "a number above 0" */
    const char *const *words;
    int32_t nwords;
} tartan_i_option_rule;

struct tartan_i_schema {
    const char *name, *function; /* "layer_norm", "tartan_layer_norm" */
    tartan_op_kind kind;
    int32_t row;       /* of a kind that several operations share */
    size_t row_member; /* its offset in the struct; 0: none */
    size_t size;       /* bytes of a tartan_op up to the end of the struct */
    const tartan_i_argument *arguments;
    int32_t narguments;
    const tartan_i_option_rule *options;
    int32_t noptions;
    size_t count_member; /* the offset of the number of arrays in a list; 0: there are no lists */
    bool any_number;     /* lists may have any number of arrays, each with a T of its own */
    tartan_status (*shapes)(const tartan_op *op, int32_t argument, tartan_array *shape); /* or NULL, */
    tartan_status (*check)(tartan_op *op, const tartan_context *context);                /* also this one, */
    void (*end)(tartan_op *op);                                                          /* and this one */
    tartan_status (*run)(const tartan_op *op, tartan_context *context); /* NULL: a backend runs it */
    bool whole; /* or backends that support it do so, although there is `run` */
    const char *text, *json;
};

/* The operations that are called by their rows, in the order of the schema. */
extern const tartan_i_schema tartan_i_schemas[];
extern const int32_t tartan_i_schema_count;

#endif
