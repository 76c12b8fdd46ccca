/* SPDX-License-Identifier: Apache-2.0
 * The strip kernels of kernels/lean.c and kernels/lean_sampled.c: each computes a strip or, if it is not made for it, returns
 * false. */
#ifndef TARTAN_KERNELS_LEAN_H
#define TARTAN_KERNELS_LEAN_H

#include "kernels/kernels.h"
#include "simd/real.h"

#define LEAN_SAMPLED KERNELS_NAME(lean_sampled, TARTAN_I_ISA, TARTAN_I_REAL)

bool LEAN_STRIP(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms);
bool LEAN_SAMPLED(const tartan_i_sampled *s);

#endif
