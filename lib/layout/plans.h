/* SPDX-License-Identifier: Apache-2.0
 * What backends derive from a layout (index sets on a device, work lists): made on first use, kept in the layout,
 * freed with it. */
#ifndef TARTAN_LAYOUT_PLANS_H
#define TARTAN_LAYOUT_PLANS_H

#include "layout/layout.h"

/* Names one derived thing: whose it is (an address unique to its maker), on which device, and a number that the
 * maker chooses. */
typedef struct tartan_i_plan_key {
    const void *maker;
    int32_t device_id;
    int32_t variant;
} tartan_i_plan_key;

/* Makes the thing for `layout`; called with the layout's lock held, so it must not ask for plans itself. */
typedef tartan_status (*tartan_i_plan_make)(const tartan_layout *layout, void *user, void **out);

/* The thing of that key, made by make(layout, user, ...) on first use and given to `release` when the layout is
 * freed (from any thread). On failure nothing is kept. From any thread. */
tartan_status tartan_i_layout_plan(const tartan_layout *layout, const tartan_i_plan_key *key,
                                   tartan_i_plan_make make, void *user, void (*release)(void *plan),
                                   void **out);

/* For tartan_layout_free: releases every plan. */
void tartan_i_layout_drop_plans(tartan_layout *layout);

#endif
