/* SPDX-License-Identifier: Apache-2.0
 * exp of f32 against an f64 oracle that compilers vectorise: libm's, one number at a time, takes an hour for all. */
#ifndef TARTAN_TESTS_KERNELS_EXP_ORACLE_H
#define TARTAN_TESTS_KERNELS_EXP_ORACLE_H

#include <stdint.h>

/* The largest error of got[i] as exp(x[i]), in units in the last place of the exact result, which it knows to 2^-20 of a
 * unit. Infinity where one of the two is NaN and the other not. n: a multiple of 8. */
double tartan_test_exp_units(int64_t n, const float *x, const float *got);

#endif
