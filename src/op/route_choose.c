/* Which experts a token goes to. Comparisons are no FLOPs; a bias and the sums of two are one addition each. */
#include "op/moe.h"

#include <string.h>

typedef struct choose_attr {
    tl_route_attr route; /* first: the kernel reads this much */
    tl_dim k;
} choose_attr;

static tl_status want_groups(tl_sig *sig, int64_t n_expert) {
    const tl_route_attr *a = &TL_ATTR(choose_attr, sig)->route;
    if (a->n_group <= 1) {
        if (a->n_group < 0 || a->topk_group < 0 || a->topk_group > a->n_group)
            return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the best %lld of %lld groups; 0 and 0 for no groups would work",
                               (long long)a->topk_group, (long long)a->n_group);
        return TL_OK;
    }
    if (n_expert % a->n_group != 0)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "%lld experts do not divide into %lld groups", (long long)n_expert,
                           (long long)a->n_group);
    int64_t size = n_expert / a->n_group;
    if (a->topk_group < 1 || a->topk_group > a->n_group)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "the best %lld of %lld groups; 1 to %lld would work",
                           (long long)a->topk_group, (long long)a->n_group, (long long)a->n_group);
    if (a->k > a->topk_group * size)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT,
                           "%lld experts a token from %lld groups of %lld; at most %lld would work", (long long)a->k,
                           (long long)a->topk_group, (long long)size, (long long)(a->topk_group * size));
    if (a->top2 && size < 2)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "groups of one expert have no best two; their best would work");
    return TL_OK;
}

/* in: what[n,E], [bias[E]] */
static tl_status route_choose_infer(tl_sig *sig) {
    const choose_attr *attr = TL_ATTR(choose_attr, sig);
    const tl_tensor *what = sig->in[0];
    char text[200];
    tl_status status = tl_sig_want_float(sig, 0);
    if (status != TL_OK)
        return status;
    if (what->shape.ndim != 2)
        return tl_sig_fail(sig, TL_ERR_SHAPE, "the scores are %s; [tokens, experts] would work",
                           tl_tensor_text(what, text, sizeof text));
    int64_t n_expert = what->shape.dim[1].size;
    if (attr->route.k < 1 || attr->route.k > n_expert)
        return tl_sig_fail(sig, TL_ERR_ARGUMENT, "%lld of %lld experts a token; 1 to %lld would work",
                           (long long)attr->route.k, (long long)n_expert, (long long)n_expert);
    if ((status = want_groups(sig, n_expert)) ||
        (sig->n_in > 1 && ((status = tl_sig_want_float(sig, 1)) ||
                           (status = tl_sig_want_vector(sig, 1, what->shape.dim[1], "the bias")))))
        return status;
    tl_shape shape = {.ndim = 2, .dim = {what->shape.dim[0], attr->k}};
    if ((status = tl_sig_check_shape(sig, &shape)) == TL_OK)
        tl_sig_add(sig, TL_I32, &shape);
    return status;
}

static void route_choose_cost(const tl_sig *sig, tl_cost *cost) {
    const tl_route_attr *a = &TL_ATTR(choose_attr, sig)->route;
    tl_dim n = tl_in_dim(sig, 0, 0), n_expert = tl_in_dim(sig, 0, 1);
    int64_t groups = a->n_group > 1 ? a->n_group : 1;
    if (sig->n_in > 1)
        cost->arithmetic = TL_AMOUNT(sig->ctx, 1, n, n_expert);
    if (groups > 1 && a->top2)
        tl_amount_more(sig->ctx, &cost->arithmetic, groups, &n, 1);
    /* of each row that is worked on at a time: its scores, the best of them, its groups' and the best of these */
    tl_dim more = tl_dim_add(sig->ctx, tl_dim_fixed(sig->ctx, tl_dim_of(2 * groups)), sig->out[0].shape.dim[1]);
    cost->workspace = tl_dim_mul(sig->ctx, tl_dim_fixed(sig->ctx, tl_dim_of(TL_SORT_SLOTS * 8)),
                                 tl_dim_add(sig->ctx, tl_dim_fixed(sig->ctx, n_expert), more));
}

static tl_status route_choose_forward(const tl_sig *sig, tl_args *args) {
    return tl_args_run(sig, args, args->kernels->route_choose);
}

static void route_choose_sample(uint64_t seed, tl_case *c) {
    int64_t groups = 1 + tl_sample_below(&seed, 4), size = 2 + tl_sample_below(&seed, 5);
    int64_t n = tl_sample_below(&seed, 20), n_expert = groups * size;
    choose_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.route.n_group = groups > 1 ? groups : 0;
    attr.route.topk_group = groups > 1 ? 1 + tl_sample_below(&seed, groups) : 0;
    attr.route.top2 = tl_sample_below(&seed, 2);
    attr.route.k = 1 + tl_sample_below(&seed, groups > 1 ? attr.route.topk_group * size : size);
    attr.k.size = attr.route.k;
    tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 2, (int64_t[]){n, n_expert});
    if (tl_sample_below(&seed, 2))
        tl_sample_input(c, TL_F32, TL_FILL_NORMAL, 1, &n_expert);
    memcpy(c->attr, &attr, sizeof attr);
    c->n_out = 1;
}

TL_OP(route_choose, sizeof(choose_attr), route_choose_infer, route_choose_cost, TL_SAVES_NONE, route_choose_forward,
      TL_NO_GRAD, route_choose_sample);

tl_tensor *tl_route_choose_(tl_tensor *what, tl_tensor *bias, tl_dim k, int64_t n_group, int64_t topk_group,
                            tl_route_group group, const char *site) {
    choose_attr attr;
    memset(&attr, 0, sizeof attr);
    attr.route.k = k.size;
    attr.route.n_group = n_group;
    attr.route.topk_group = topk_group;
    attr.route.top2 = group == TL_ROUTE_GROUP_TOP2;
    attr.k = k;
    return tl_run1(&tl_op_route_choose, (tl_tensor *[]){what, bias}, bias ? 2 : 1, &attr, site);
}

/* ---- routing: the choice, and weights written with other ops, so that their gradient is theirs ---- */

static tl_status check_options(tl_tensor *scores, const tl_route_options *o, const char *site) {
    if ((unsigned)o->score > TL_ROUTE_CHOSEN_SIGMOID || (unsigned)o->group > TL_ROUTE_GROUP_TOP2)
        return tl_ctx_fail(scores->ctx, TL_ERR_ARGUMENT, "route_top_k (%s): no such kind of score or group", site);
    if (o->renormalise && o->score == TL_ROUTE_CHOSEN_SOFTMAX)
        return tl_ctx_fail(scores->ctx, TL_ERR_ARGUMENT,
                           "route_top_k (%s): a softmax over the chosen sums to 1; renormalising it does nothing",
                           site);
    if (!(o->renormalise_epsilon >= 0) || (o->renormalise_epsilon != 0 && !o->renormalise))
        return tl_ctx_fail(scores->ctx, TL_ERR_ARGUMENT,
                           "route_top_k (%s): an epsilon of %g; 0 or more, with renormalise, would work", site,
                           o->renormalise_epsilon);
    if (!(o->scale - o->scale == 0)) /* NaN or infinite */
        return tl_ctx_fail(scores->ctx, TL_ERR_ARGUMENT, "route_top_k (%s): a scale of %g; a finite one would work",
                           site, o->scale);
    return TL_OK;
}

static tl_tensor *renormalised(tl_tensor *weights, double epsilon, const char *site) {
    tl_tensor *sum = tl_sum_(weights, (int[]){-1}, 1, true, site);
    if (epsilon > 0)
        sum = tl_scale_(sum, 1, epsilon, site);
    return tl_div_(weights, sum, site);
}

tl_status tl_route_top_k_(tl_tensor *scores, const tl_route_options *o, tl_routing *routing, const char *site) {
    *routing = (tl_routing){NULL, NULL, NULL};
    if (!scores)
        return TL_ERR_ARGUMENT;
    tl_status status = check_options(scores, o, site);
    if (status != TL_OK)
        return status;
    bool before = o->score == TL_ROUTE_SOFTMAX || o->score == TL_ROUTE_SIGMOID;
    tl_tensor *from = scores;
    if (before)
        from = o->score == TL_ROUTE_SOFTMAX ? tl_softmax_(scores, 1, false, site) : tl_sigmoid_(scores, site);
    tl_tensor *experts = from ? tl_route_choose_(from, o->bias, o->k, o->n_group, o->topk_group, o->group, site) : NULL;
    tl_tensor *weights = tl_gather_elements_(from, experts, 1, site);
    if (o->score == TL_ROUTE_CHOSEN_SOFTMAX)
        weights = tl_softmax_(weights, 1, false, site);
    if (o->score == TL_ROUTE_CHOSEN_SIGMOID)
        weights = tl_sigmoid_(weights, site);
    if (o->renormalise)
        weights = renormalised(weights, o->renormalise_epsilon, site);
    if (o->scale != 0 && o->scale != 1)
        weights = tl_scale_(weights, o->scale, 0, site);
    if (weights)
        *routing = (tl_routing){weights, experts, before ? from : NULL};
    return tl_ctx_status(scores->ctx);
}
