/* SPDX-License-Identifier: Apache-2.0
 * What backends derive from a layout (index sets on a device, work lists) or from an in-block mask (its bits on a
 * device): made on first use, kept in the layout or mask, freed with it. */
#ifndef TARTAN_LAYOUT_PLANS_H
#define TARTAN_LAYOUT_PLANS_H

#include "layout/block_mask.h"

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

/* The same for a plan of a mask, which is freed with the mask: make(the mask's layout, user, ...). */
tartan_status tartan_i_block_mask_plan(const tartan_block_mask *block_mask, const tartan_i_plan_key *key,
                                       tartan_i_plan_make make, void *user, void (*release)(void *plan),
                                       void **out);

/* For the makers of layouts and masks: no plans yet; and the end, which releases every plan. */
void tartan_i_plans_begin(tartan_i_plans *plans);
void tartan_i_plans_drop(tartan_i_plans *plans);

#endif
