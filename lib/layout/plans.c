/* SPDX-License-Identifier: Apache-2.0
 * What backends cache in a layout. Nodes are only added at the front of the list, so a search needs no lock; the
 * lock keeps two threads from making the same plan. */
#include "layout/plans.h"

typedef struct tartan_i_plan_node {
    struct tartan_i_plan_node *next;
    tartan_i_plan_key key;
    void *plan;
    void (*release)(void *plan);
} plan_node;

static const plan_node *find(const tartan_layout *layout, const tartan_i_plan_key *key) {
    const plan_node *node = __atomic_load_n(&layout->plans, __ATOMIC_ACQUIRE);
    while (node != NULL && (node->key.maker != key->maker || node->key.device_id != key->device_id ||
                            node->key.variant != key->variant))
        node = node->next;
    return node;
}

/* The lock is held. */
static tartan_status add(tartan_layout *layout, const tartan_i_plan_key *key, tartan_i_plan_make make,
                         void *user, void (*release)(void *plan), const plan_node **out) {
    tartan_status status;
    plan_node *node = NULL;
    NEW(node, 1);
    *node = (plan_node){.next = layout->plans, .key = *key, .release = release};
    TRY(make(layout, user, &node->plan));
    __atomic_store_n(&layout->plans, node, __ATOMIC_RELEASE);
    *out = node;
    return TARTAN_OK;
fail:
    tartan_i_free(node);
    return status;
}

tartan_status tartan_i_layout_plan(const tartan_layout *layout, const tartan_i_plan_key *key,
                                   tartan_i_plan_make make, void *user, void (*release)(void *plan),
                                   void **out) {
    *out = NULL;
    const plan_node *node = find(layout, key);
    if (node == NULL) {
        tartan_layout *owner = (tartan_layout *)layout; /* plans are not part of a layout's value */
        tartan_status status = TARTAN_OK;
        pthread_mutex_lock(&owner->plans_lock);
        node = find(layout, key); /* another thread may have been first */
        if (node == NULL) status = add(owner, key, make, user, release, &node);
        pthread_mutex_unlock(&owner->plans_lock);
        PASS(status);
    }
    *out = node->plan;
    return TARTAN_OK;
}

void tartan_i_layout_drop_plans(tartan_layout *layout) {
    plan_node *node = layout->plans;
    layout->plans = NULL;
    while (node != NULL) {
        plan_node *next = node->next;
        node->release(node->plan);
        tartan_i_free(node);
        node = next;
    }
}
