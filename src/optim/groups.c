/* Parameter groups: which rules hold for which parameter. */
#include "optim/optimizer.h"

#include <stdio.h>

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

static tl_status wrong(tl_ctx *ctx, const tl_parameter_group *g, const char *what, double value, const char *would) {
    return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter group \"%.80s\": %s %g; %s would work", g->pattern, what, value,
                       would);
}

static bool is_beta(double x) { return x >= 0 && x < 1; }

/* Adam's own numbers, for an optimizer that has them. */
static tl_status check_moments(tl_ctx *ctx, const tl_parameter_group *g, const tl_optimizer_options *o) {
    const bool kept = o->kind != TL_OPTIM_NONE;
    if (!g->has_betas && (g->beta1 != 0 || g->beta2 != 0))
        return wrong(ctx, g, "betas that it does not have, of", g->beta1 != 0 ? g->beta1 : g->beta2, "0");
    if (g->has_betas && kept && !tl_optimizer_is_adam(o->kind))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter group \"%.80s\": %s has no betas; adam and adamw have",
                           g->pattern, tl_optimizer_name(o->kind));
    if (g->has_betas && !(is_beta(g->beta1) && is_beta(g->beta2)))
        return wrong(ctx, g, "a beta of", is_beta(g->beta1) ? g->beta2 : g->beta1, "0 or more, below 1,");
    if (g->epsilon != 0 && kept && o->kind == TL_OPTIM_SGD)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter group \"%.80s\": sgd has no epsilon; adamw has",
                           g->pattern);
    if (!(g->epsilon >= 0) || g->epsilon > 1e30)
        return wrong(ctx, g, "an epsilon of", g->epsilon, "a number above 0");
    return TL_OK;
}

static tl_status check_group(tl_ctx *ctx, const tl_parameter_group *g, const tl_optimizer_options *o, int index) {
    if (!g->pattern)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter group %d has no pattern; \"*.bias\" would be one", index);
    if (g->frozen && (g->lr_factor != 0 || g->weight_decay != 0))
        return tl_ctx_fail(
            ctx, TL_ERR_ARGUMENT,
            "parameter group \"%.80s\" is frozen: a factor of %g and a decay of %g have no effect; 0 and "
            "0 would work",
            g->pattern, g->lr_factor, g->weight_decay);
    if (g->frozen && (g->has_betas || g->epsilon != 0))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "parameter group \"%.80s\" is frozen: betas and epsilon have no effect; none would work",
                           g->pattern);
    if (!g->frozen && (!(g->lr_factor > 0) || g->lr_factor > 1e30))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "parameter group \"%.80s\": the learning rate times %g; a factor above 0 would work, or "
                           "frozen",
                           g->pattern, g->lr_factor);
    if (!g->frozen && g->weight_decay != TL_GROUP_DECAY && (!(g->weight_decay >= 0) || g->weight_decay > 1e30))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "parameter group \"%.80s\": a weight decay of %g; 0 or more would work, or TL_GROUP_DECAY",
                           g->pattern, g->weight_decay);
    return g->frozen ? TL_OK : check_moments(ctx, g, o);
}

static const char *name_of(const tl_parameter *p) { return p->name ? p->name : ""; }

static tl_parameter_rule by_default(const tl_parameter *p, const tl_optimizer_options *o) {
    return (tl_parameter_rule){.group = -1,
                               .lr_factor = 1,
                               .weight_decay = p->decay || o->decay_all ? o->weight_decay : 0,
                               .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .epsilon = o->epsilon,
                               .frozen = p->frozen};
}

static tl_parameter_rule rule_of(const tl_parameter_group *g, int index, const tl_parameter *p,
                                 const tl_optimizer_options *o) {
    tl_parameter_rule rule = by_default(p, o);
    rule.group = index;
    rule.frozen |= g->frozen;
    rule.lr_factor = g->lr_factor;
    if (g->weight_decay != TL_GROUP_DECAY)
        rule.weight_decay = g->weight_decay;
    if (g->has_betas)
        rule.beta1 = g->beta1, rule.beta2 = g->beta2;
    if (g->epsilon != 0)
        rule.epsilon = g->epsilon;
    return rule;
}

/* The forgotten star is the usual mistake: how many names hold the pattern somewhere. */
static tl_status fail_unmatched(tl_ctx *ctx, const char *pattern, const tl_parameter *parameters, int count) {
    char wider[TL_GROUPS_TEXT + 3];
    int n = 0;
    const int length = snprintf(wider, sizeof wider, "*%s*", pattern);
    for (int i = 0; length > 0 && (size_t)length < sizeof wider && i < count; i++)
        n += matches(wider, name_of(&parameters[i]));
    if (n > 0)
        return tl_ctx_fail(
            ctx, TL_ERR_ARGUMENT,
            "parameter group \"%.80s\" matches none of the %d parameters (the first is %.80s); \"%.80s\" "
            "would match %d",
            pattern, count, name_of(&parameters[0]), wider, n);
    return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                       "parameter group \"%.80s\" matches none of the %d parameters (the first is %.80s)", pattern,
                       count, count > 0 && parameters[0].name ? parameters[0].name : "none");
}

/* A group that in the end changes nothing about any parameter is a mistake. */
static tl_status check_held(tl_ctx *ctx, const tl_parameter *parameters, int count, const tl_optimizer_options *o,
                            const tl_slot *slots) {
    for (int k = 0; k < o->n_groups; k++) {
        const tl_parameter_group *g = &o->groups[k];
        int held = 0, trained = 0, by = -1;
        for (int i = 0; i < count; i++) {
            held += slots[i].rule.group == k;
            trained += slots[i].rule.group == k && !parameters[i].frozen;
            if (slots[i].rule.group > k && matches(g->pattern, name_of(&parameters[i])))
                by = slots[i].rule.group;
        }
        if (held == 0)
            return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                               "parameter group \"%.80s\" holds nothing: later groups, \"%.80s\" among them, match all "
                               "that it matches, and of several the last holds; behind them it would work",
                               g->pattern, o->groups[by].pattern);
        if (trained == 0)
            return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                               "parameter group \"%.80s\" changes nothing: the %d parameters that it holds are frozen "
                               "without it",
                               g->pattern, held);
    }
    return TL_OK;
}

tl_status tl_groups_apply(tl_ctx *ctx, const tl_parameter *parameters, int count, const tl_optimizer_options *o,
                          tl_slot *slots) {
    for (int i = 0; i < count; i++)
        slots[i].rule = by_default(&parameters[i], o);
    if (o->n_groups < 0 || (o->n_groups > 0 && !o->groups))
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%d parameter groups%s", o->n_groups,
                           o->n_groups < 0 ? "; 0 or more would work" : ", but no list of them");
    for (int k = 0; k < o->n_groups; k++) {
        const tl_parameter_group *g = &o->groups[k];
        int found = 0;
        tl_status status = check_group(ctx, g, o, k);
        if (status != TL_OK)
            return status;
        for (int i = 0; i < count; i++) {
            if (!matches(g->pattern, name_of(&parameters[i])))
                continue;
            slots[i].rule = rule_of(g, k, &parameters[i], o);
            found++;
        }
        if (found == 0)
            return fail_unmatched(ctx, g->pattern, parameters, count);
    }
    int trained = 0;
    for (int i = 0; i < count; i++)
        trained += !slots[i].rule.frozen;
    if (o->n_groups > 0 && trained == 0)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                           "parameter groups: all %d parameters are frozen and nothing is left to train; a last group "
                           "that is not would work",
                           count);
    return check_held(ctx, parameters, count, o, slots);
}
