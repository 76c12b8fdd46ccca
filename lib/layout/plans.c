/* SPDX-License-Identifier: Apache-2.0
 * What backends cache in layouts and masks. Nodes are only added at the front of the list, so a search needs no lock; the
 * lock keeps two threads from making the same plan. */
#include "layout/plans.h"

typedef struct tartan_i_plan_node {
    struct tartan_i_plan_node *next;
    tartan_i_plan_key key;
    void *plan;
    void (*release)(void *plan);
} plan_node;

static const plan_node *find(const tartan_i_plans *plans, const tartan_i_plan_key *key) {
    const plan_node *node = __atomic_load_n(&plans->first, __ATOMIC_ACQUIRE);
    while (node != NULL && (node->key.maker != key->maker || node->key.device_id != key->device_id ||
                            node->key.variant != key->variant))
        node = node->next;
    return node;
}

/* The lock is held. */
static tartan_status add(tartan_i_plans *plans, const tartan_layout *layout, const tartan_i_plan_key *key,
                         tartan_i_plan_make make, void *user, void (*release)(void *plan),
                         const plan_node **out) {
    tartan_status status;
    plan_node *node = NULL;
    NEW(node, 1);
    *node = (plan_node){.next = plans->first, .key = *key, .release = release};
    TRY(make(layout, user, &node->plan));
    __atomic_store_n(&plans->first, node, __ATOMIC_RELEASE);
    *out = node;
    return TARTAN_OK;
fail:
    tartan_i_free(node);
    return status;
}

static tartan_status find_or_add(const tartan_i_plans *plans, const tartan_layout *layout,
                                 const tartan_i_plan_key *key, tartan_i_plan_make make, void *user,
                                 void (*release)(void *plan), void **out) {
    *out = NULL;
    const plan_node *node = find(plans, key);
    if (node == NULL) {
        tartan_i_plans *owned = (tartan_i_plans *)plans; /* plans are not part of the owner's value */
        tartan_status status = TARTAN_OK;
        pthread_mutex_lock(&owned->lock);
        node = find(plans, key); /* another thread may have been first */
        if (node == NULL) status = add(owned, layout, key, make, user, release, &node);
        pthread_mutex_unlock(&owned->lock);
        PASS(status);
    }
    *out = node->plan;
    return TARTAN_OK;
}

tartan_status tartan_i_layout_plan(const tartan_layout *layout, const tartan_i_plan_key *key,
                                   tartan_i_plan_make make, void *user, void (*release)(void *plan),
                                   void **out) {
    return find_or_add(&layout->plans, layout, key, make, user, release, out);
}

tartan_status tartan_i_block_mask_plan(const tartan_block_mask *block_mask, const tartan_i_plan_key *key,
                                       tartan_i_plan_make make, void *user, void (*release)(void *plan),
                                       void **out) {
    return find_or_add(&block_mask->plans, block_mask->layout, key, make, user, release, out);
}

void tartan_i_plans_begin(tartan_i_plans *plans) {
    plans->first = NULL;
    pthread_mutex_init(&plans->lock, NULL); /* cannot fail for a plain mutex */
}

void tartan_i_plans_drop(tartan_i_plans *plans) {
    plan_node *node = plans->first;
    plans->first = NULL;
    while (node != NULL) {
        plan_node *next = node->next;
        node->release(node->plan);
        tartan_i_free(node);
        node = next;
    }
    pthread_mutex_destroy(&plans->lock);
}
