/* SPDX-License-Identifier: Apache-2.0
 * The strip kernel of kernels/lean.c: computes a strip or, if it is not made for it, returns false. */
#ifndef TARTAN_KERNELS_LEAN_H
#define TARTAN_KERNELS_LEAN_H

#include "kernels/kernels.h"
#include "simd/real.h"

bool LEAN_STRIP(const tartan_i_strip *s, const tartan_i_term *terms, int64_t nterms);

#endif
