/* SPDX-License-Identifier: Apache-2.0
 * What backends derive from a layout (index sets on a device, work lists): made on first use, kept in the layout,
 * freed with it. */
#ifndef TARTAN_LAYOUT_PLANS_H
#define TARTAN_LAYOUT_PLANS_H

#include "layout/layout.h"

/* The key of a plan: an address unique to its maker, the device, and a number that the maker chooses. */
typedef struct tartan_i_plan_key {
    const void *maker;
    int32_t device_id;
    int32_t variant;
} tartan_i_plan_key;

/* Makes a plan for `layout`. Called with the layout's lock held, so it must not request plans itself. */
typedef tartan_status (*tartan_i_plan_make)(const tartan_layout *layout, void *user, void **out);

/* The plan of that key, made by make(layout, user, ...) on first use and passed to `release` when the layout is
 * freed. On failure nothing is cached. Any thread may call this, and `release` may run on any thread. */
tartan_status tartan_i_layout_plan(const tartan_layout *layout, const tartan_i_plan_key *key,
                                   tartan_i_plan_make make, void *user, void (*release)(void *plan),
                                   void **out);

/* For tartan_layout_free: releases every plan. */
void tartan_i_layout_drop_plans(tartan_layout *layout);

#endif
