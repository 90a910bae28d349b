/* Parameter groups: which rules hold for which parameter. */
#include "optim/optimizer.h"

/* * is any run of characters, ? any one. On a mismatch the last * takes one more: no recursion, so that a hostile pattern
 * costs pattern × name and no more. */
static bool matches(const char *pattern, const char *name) {
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++, name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

static tl_status check_group(tl_ctx *ctx, const tl_parameter_group *g, int index) {
    if (!g->pattern)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter group %d has no pattern; \"*.bias\" would be one", index);
    if (g->frozen && (g->lr_factor != 0 || g->weight_decay != 0))
        return tl_ctx_fail(
            ctx, TL_ERR_ARGUMENT,
            "parameter group \"%.80s\" is frozen: a factor of %g and a decay of %g have no effect; 0 and "
            "0 would work",
            g->pattern, g->lr_factor, g->weight_decay);
    if (!g->frozen && (!(g->lr_factor > 0) || g->lr_factor > 1e30))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "parameter group \"%.80s\": the learning rate times %g; a factor above 0 would work, or "
                           "frozen",
                           g->pattern, g->lr_factor);
    if (!g->frozen && g->weight_decay != TL_GROUP_DECAY && (!(g->weight_decay >= 0) || g->weight_decay > 1e30))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "parameter group \"%.80s\": a weight decay of %g; 0 or more would work, or TL_GROUP_DECAY",
                           g->pattern, g->weight_decay);
    return TL_OK;
}

tl_status tl_groups_apply(tl_ctx *ctx, const tl_parameter *parameters, int count, const tl_optimizer_options *o,
                          tl_slot *slots) {
    for (int i = 0; i < count; i++) {
        slots[i].frozen = parameters[i].frozen;
        slots[i].lr_factor = 1;
        slots[i].weight_decay = parameters[i].decay || o->decay_all ? o->weight_decay : 0;
    }
    if (o->n_groups < 0 || (o->n_groups > 0 && !o->groups))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%d parameter groups%s", o->n_groups,
                           o->n_groups < 0 ? "; 0 or more would work" : ", but no list of them");
    for (int k = 0; k < o->n_groups; k++) {
        const tl_parameter_group *g = &o->groups[k];
        int found = 0;
        tl_status status = check_group(ctx, g, k);
        if (status != TL_OK)
            return status;
        for (int i = 0; i < count; i++) {
            if (!matches(g->pattern, parameters[i].name ? parameters[i].name : ""))
                continue;
            bool by_default = g->weight_decay == TL_GROUP_DECAY;
            double own = parameters[i].decay || o->decay_all ? o->weight_decay : 0;
            slots[i].frozen = g->frozen || parameters[i].frozen;
            slots[i].lr_factor = g->lr_factor;
            slots[i].weight_decay = by_default ? own : g->weight_decay;
            found++;
        }
        if (found == 0)
            return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                               "parameter group \"%.80s\" matches none of the %d parameters (the first is %.80s)",
                               g->pattern, count, count > 0 && parameters[0].name ? parameters[0].name : "none");
    }
    return TL_OK;
}
