/* Optimizers: which states a parameter has, when they appear, and the one update op of each. */
#include "optim/optimizer.h"

/* A master copy is booked where its parameter lives, so that equal layers fold. */
static bool add_master(tl_optimizer *opt, tl_slot *s) {
    tl_ctx *ctx = opt->ctx;
    tl_place before = ctx->place;
    ctx->place.region = s->parameter->storage->region;
    ctx->place.module = s->parameter->storage->module;
    tl_tensor *copy = tl_cast_(s->parameter, TL_F32, TL_HERE);
    if (copy && copy != s->parameter) {
        s->master = tl_keep(copy);
        tl_storage_retag(copy->storage, TL_MASTER);
    }
    ctx->place = before;
    return copy != NULL;
}

/* Bytes [*low, *high) of its storage that a tensor reaches over. */
static void reach(const tl_tensor *t, int64_t *low, int64_t *high) {
    int64_t least = t->offset;
    int64_t most = least;
    for (int d = 0; d < t->shape.ndim; d++) {
        const int64_t span = (t->shape.dim[d].size - 1) * t->stride[d];
        *(span < 0 ? &least : &most) += span;
    }
    *low = least * tl_dtype_bytes(t->dtype);
    *high = (most + 1) * tl_dtype_bytes(t->dtype);
}

/* The same tensor, or another handle on the same numbers: a second update of them would go unseen. */
static bool is_shared(const tl_tensor *a, const tl_tensor *b) {
    int64_t low[2], high[2];
    if (a == b)
        return true;
    if (a->storage != b->storage || tl_tensor_count(a) == 0 || tl_tensor_count(b) == 0)
        return false;
    reach(a, &low[0], &high[0]);
    reach(b, &low[1], &high[1]);
    return low[0] < high[1] && low[1] < high[0];
}

/* Places of parameters by their storage, so that only those of one storage are compared: 1 + parameter; 0: free. */
typedef struct places {
    int *of;
    uint64_t count; /* 2^(64 - shift) */
    int shift;
} places;

/* False: its numbers are those of an earlier one. */
static bool add_place(const places *p, const tl_parameter *parameters, int i) {
    const tl_tensor *t = parameters[i].tensor;
    uint64_t at = ((uint64_t)(uintptr_t)t->storage * UINT64_C(0x9E3779B97F4A7C15)) >> p->shift; /* Fibonacci hashing */
    for (; p->of[at]; at = (at + 1) & (p->count - 1))
        if (is_shared(parameters[p->of[at] - 1].tensor, t))
            return false;
    p->of[at] = i + 1;
    return true;
}

static tl_status check_shared(tl_ctx *ctx, const tl_parameter *parameters, int count) {
    places p = {.count = 4, .shift = 62};
    while (p.count < 2 * (uint64_t)count)
        p.count *= 2, p.shift--;
    p.of = tl_host_alloc(ctx, (size_t)p.count * sizeof *p.of);
    int i = 0;
    while (p.of && i < count && add_place(&p, parameters, i))
        i++;
    if (p.of && i < count)
        tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter %s is given twice; a shared parameter is updated once",
                    parameters[i].name);
    tl_host_free(ctx, p.of, (size_t)p.count * sizeof *p.of);
    return ctx->error.status;
}

static tl_status fill_slots(tl_optimizer *opt, const tl_parameter *parameters) {
    tl_ctx *ctx = opt->ctx;
    const tl_optimizer_options *o = &opt->options;
    tl_status status = tl_groups_apply(ctx, parameters, opt->count, o, opt->slots);
    if (status == TL_OK)
        status = check_shared(ctx, parameters, opt->count);
    for (int i = 0; i < opt->count && status == TL_OK; i++) {
        tl_slot *s = &opt->slots[i];
        s->parameter = parameters[i].tensor;
        if (s->rule.frozen)
            tl_tensor_require_grad(s->parameter, false);
        else if (o->master && o->kind != TL_OPTIM_NONE && !add_master(opt, s))
            status = ctx->error.status;
    }
    return status;
}

tl_optimizer *tl_optimizer_new(tl_ctx *ctx, const tl_parameter *parameters, int count,
                               const tl_optimizer_options *options) {
    if (ctx->error.status != TL_OK || tl_optimizer_check(ctx, options) != TL_OK)
        return NULL;
    for (int i = 0; i < count; i++) {
        const tl_tensor *t = parameters[i].tensor;
        if (!t)
            tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter %d has no tensor", i);
        else if (!parameters[i].frozen && !tl_dtype_is_float(t->dtype))
            tl_ctx_fail(ctx, TL_ERR_DTYPE, "parameter %s is %s; f64, f32, bf16 or f16 would work", parameters[i].name,
                        tl_dtype_name(t->dtype));
        if (ctx->error.status != TL_OK)
            return NULL;
    }
    tl_optimizer *opt = tl_host_alloc(ctx, sizeof *opt);
    if (!opt)
        return NULL;
    opt->ctx = ctx;
    opt->options = *options;
    opt->count = count;
    opt->slots = tl_host_alloc(ctx, (size_t)count * sizeof *opt->slots);
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_scope_begin(ctx);
    bool ok = opt->slots != NULL && fill_slots(opt, parameters) == TL_OK;
    tl_scope_end(ctx);
    ctx->recording = recording;
    opt->options.groups = NULL; /* borrowed until here */
    if (!ok) {
        tl_optimizer_free(opt);
        return NULL;
    }
    return opt;
}

void tl_optimizer_free(tl_optimizer *opt) {
    if (!opt)
        return;
    tl_ctx *ctx = opt->ctx;
    for (int i = 0; opt->slots && i < opt->count; i++) {
        tl_free(opt->slots[i].master);
        for (int k = 0; k < TL_OPTIM_MAX_STATES; k++)
            tl_free(opt->slots[i].state[k]);
    }
    tl_host_free(ctx, opt->slots, (size_t)opt->count * sizeof *opt->slots);
    tl_host_free(ctx, opt, sizeof *opt);
}

/* ---- states ---- */

static const char *const *state_names(const tl_optimizer_options *o, int *count) {
    static const char *const adam[] = {"exp_avg", "exp_avg_sq", "exp_avg_scale", "exp_avg_sq_scale"};
    static const char *const momentum[] = {"momentum_buffer"}, *const sum[] = {"sum"};
    static const char *const both[] = {"square_avg", "momentum_buffer", "grad_avg"};
    static const char *const centered[] = {"square_avg", "grad_avg"};
    switch (o->kind) {
    case TL_OPTIM_ADAM:
    case TL_OPTIM_ADAMW:
    case TL_OPTIM_ADAMW8BIT:
        *count = o->kind == TL_OPTIM_ADAMW8BIT ? 4 : 2;
        return adam;
    case TL_OPTIM_ADAGRAD:
        *count = 1;
        return sum;
    case TL_OPTIM_RMSPROP:
        *count = 1 + (o->momentum != 0) + o->centered;
        return o->momentum != 0 ? both : centered;
    case TL_OPTIM_SGD:
        *count = o->momentum != 0 ? 1 : 0;
        return momentum;
    default:
        *count = 0;
        return NULL;
    }
}

/* Small tensors gain little from 8 bits and are the ones that mind: norms, biases (Dettmers et al. 2022, section 2.2). */
static bool in_8_bits(const tl_optimizer *opt, const tl_slot *s) {
    return opt->options.kind == TL_OPTIM_ADAMW8BIT && tl_tensor_count(s->parameter) >= TL_OPTIM_8BIT_SMALLEST;
}

static int states_of(const tl_optimizer *opt, const tl_slot *s) {
    int count = 0;
    (void)state_names(&opt->options, &count);
    if (s->rule.frozen)
        return 0;
    return opt->options.kind == TL_OPTIM_ADAMW8BIT && !in_8_bits(opt, s) ? 2 : count;
}

static tl_dtype format_of(const tl_optimizer *opt, const tl_slot *s) {
    const tl_optimizer_options *o = &opt->options;
    switch (o->states) {
    case TL_STATES_PARAMETER:
        return s->master ? TL_F32 : s->parameter->dtype;
    case TL_STATES_F32:
        return TL_F32;
    case TL_STATES_BF16:
        return TL_BF16;
    case TL_STATES_F16:
        return TL_F16;
    default:
        break;
    }
    if (o->kind == TL_OPTIM_ADAMW8BIT)
        return TL_F32;
    if (s->parameter->dtype == TL_F64)
        return TL_F64;
    return o->state_f32 || s->master ? TL_F32 : s->parameter->dtype;
}

/* One scale for each block of the parameter's elements. */
static tl_shape scales_of(tl_ctx *ctx, const tl_tensor *parameter) {
    tl_dim all = tl_dim_of(1);
    for (int d = 0; d < parameter->shape.ndim; d++)
        all = tl_dim_mul(ctx, all, parameter->shape.dim[d]);
    return TL_SHAPE(ctx, tl_dim_ceil_div(ctx, all, TL_OPTIM_8BIT_BLOCK));
}

static tl_status make_states(tl_optimizer *opt, tl_slot *s) {
    int count = states_of(opt, s);
    for (int k = 0; k < count; k++) {
        tl_dtype dtype = format_of(opt, s);
        tl_shape shape = s->parameter->shape;
        if (s->state[k])
            continue;
        if (in_8_bits(opt, s) && k < 2)
            dtype = TL_U8;
        else if (in_8_bits(opt, s))
            shape = scales_of(opt->ctx, s->parameter);
        s->state[k] = tl_keep(tl_empty(opt->ctx, dtype, shape, TL_OPTIM));
        if (!s->state[k] || !tl_fill_(s->state[k], 0.0, TL_HERE)) /* codes too: with a scale of 0 each stands for 0 */
            return opt->ctx->error.status;
    }
    return TL_OK;
}

/* ---- steps ---- */

/* In f32, so that what is small is not rounded to zero now that the loss scale is taken out. */
tl_tensor *tl_optimizer_unscaled(tl_optimizer *opt, tl_tensor *grad) {
    if (!opt->unscale)
        return grad;
    bool same = grad->dtype == TL_F32 || grad->dtype == TL_F64;
    return tl_scale_into_(same ? grad : tl_cast_(grad, TL_F32, TL_HERE), opt->factor, TL_HERE);
}

static tl_status update_fused(tl_optimizer *opt, tl_slot *s, double lr, bool first) {
    const tl_optimizer_options *o = &opt->options;
    tl_tensor *target = s->master ? s->master : s->parameter, *copy = s->master ? s->parameter : NULL;
    tl_tensor *grad = tl_optimizer_unscaled(opt, s->parameter->grad);
    const tl_parameter_rule *r = &s->rule;
    double decay = r->weight_decay;
    tl_adamw_options adam = {lr, r->beta1, r->beta2, r->epsilon, decay, opt->steps, o->cs336_order};
    tl_adagrad_options adagrad = {lr, r->epsilon, decay, o->epsilon_outside};
    tl_rmsprop_options rmsprop = {lr, o->alpha, r->epsilon, decay, o->momentum, o->centered};
    switch (o->kind) {
    case TL_OPTIM_ADAM:
        return tl_adam_update_(target, grad, s->state[0], s->state[1], copy, &adam, TL_HERE);
    case TL_OPTIM_ADAMW8BIT:
        if (in_8_bits(opt, s))
            return tl_adamw8bit_update_(target, grad, s->state, copy, &adam, TL_HERE);
        return tl_adamw_update_(target, grad, s->state[0], s->state[1], copy, &adam, TL_HERE);
    case TL_OPTIM_ADAMW:
        return tl_adamw_update_(target, grad, s->state[0], s->state[1], copy, &adam, TL_HERE);
    case TL_OPTIM_ADAGRAD:
        return tl_adagrad_update_(target, grad, s->state[0], copy, &adagrad, TL_HERE);
    case TL_OPTIM_RMSPROP:
        return tl_rmsprop_update_(target, grad, s->state, copy, &rmsprop, TL_HERE);
    default:
        return tl_sgd_update_(target, grad, s->state[0], copy, lr, o->momentum, decay, o->nesterov, first, TL_HERE);
    }
}

static bool starts(const tl_optimizer *opt, const tl_slot *s) {
    return opt->options.kind == TL_OPTIM_SGD && opt->options.momentum != 0 && !s->state[0];
}

static bool is_due(const tl_optimizer *opt, const tl_slot *s) {
    return opt->options.kind != TL_OPTIM_NONE && s->parameter->grad && !s->rule.frozen;
}

tl_status tl_optimizer_begin_step(tl_optimizer *opt, double lr) {
    tl_ctx *ctx = opt->ctx;
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (!(lr >= 0) || lr > 1e30)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "a learning rate of %g; it must be finite and not negative", lr);
    opt->steps++;
    return TL_OK;
}

static tl_status step_slot(tl_optimizer *opt, tl_slot *s, double lr) {
    tl_ctx *ctx = opt->ctx;
    bool first = starts(opt, s), composed = opt->options.update != TL_UPDATE_FUSED && !in_8_bits(opt, s);
    ctx->place.region = s->parameter->storage->region;
    ctx->place.module = s->parameter->storage->module;
    tl_scope_begin(ctx);
    tl_status status = make_states(opt, s);
    if (status == TL_OK)
        status = composed ? tl_update_composed(opt, s, lr, first) : update_fused(opt, s, lr * s->rule.lr_factor, first);
    tl_scope_end(ctx);
    return status;
}

tl_status tl_optimizer_step_one(tl_optimizer *opt, int i, double lr) {
    tl_ctx *ctx = opt->ctx;
    tl_place before = ctx->place;
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_STEP);
    tl_status status = is_due(opt, &opt->slots[i]) ? step_slot(opt, &opt->slots[i], lr) : TL_OK;
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    ctx->recording = recording;
    return status;
}

/* All parameters together; what is kept in 8 bits has but the one way. */
static tl_status step_together(tl_optimizer *opt, double lr) {
    tl_ctx *ctx = opt->ctx;
    size_t slots_bytes = (size_t)opt->count * sizeof(tl_slot *), first_bytes = (size_t)opt->count * sizeof(bool);
    tl_slot **list = tl_host_alloc(ctx, slots_bytes);
    bool *first = tl_host_alloc(ctx, first_bytes);
    tl_status status = list && first ? TL_OK : ctx->error.status;
    int n = 0;
    for (int i = 0; i < opt->count && status == TL_OK; i++) {
        tl_slot *s = &opt->slots[i];
        if (!is_due(opt, s))
            continue;
        if (in_8_bits(opt, s)) {
            status = step_slot(opt, s, lr);
            continue;
        }
        first[n] = starts(opt, s);
        list[n++] = s;
        ctx->place.region = s->parameter->storage->region;
        ctx->place.module = s->parameter->storage->module;
        tl_scope_begin(ctx);
        status = make_states(opt, s);
        tl_scope_end(ctx);
    }
    if (status == TL_OK)
        status = tl_update_foreach(opt, list, first, n, lr);
    tl_host_free(ctx, first, first_bytes);
    tl_host_free(ctx, list, slots_bytes);
    return status;
}

tl_status tl_optimizer_step(tl_optimizer *opt, double lr) {
    if (!opt)
        return TL_ERR_ARGUMENT;
    tl_ctx *ctx = opt->ctx;
    tl_status status = tl_optimizer_begin_step(opt, lr);
    if (status != TL_OK)
        return status;
    bool recording = ctx->recording;
    tl_place before = ctx->place;
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_STEP);
    if (opt->options.update == TL_UPDATE_FOREACH)
        status = step_together(opt, lr);
    for (int i = 0; opt->options.update != TL_UPDATE_FOREACH && i < opt->count && status == TL_OK; i++)
        if (is_due(opt, &opt->slots[i]))
            status = step_slot(opt, &opt->slots[i], lr);
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    ctx->recording = recording;
    return status;
}

void tl_optimizer_unscale(tl_optimizer *opt, bool on, double factor) {
    opt->unscale = on;
    opt->factor = factor;
}

int64_t tl_optimizer_steps(const tl_optimizer *opt) { return opt->steps; }

tl_parameter_rule tl_optimizer_rule(const tl_optimizer *opt, int i) {
    return i >= 0 && i < opt->count ? opt->slots[i].rule : (tl_parameter_rule){.group = -1};
}

int tl_optimizer_states(const tl_optimizer *opt, int i) {
    return i >= 0 && i < opt->count ? states_of(opt, &opt->slots[i]) : 0;
}

const char *tl_optimizer_state_name(const tl_optimizer *opt, int k) {
    int count = 0;
    const char *const *names = state_names(&opt->options, &count);
    return k >= 0 && k < count ? names[k] : NULL;
}

tl_tensor *tl_optimizer_state(const tl_optimizer *opt, int i, int k) {
    return i >= 0 && i < opt->count && k >= 0 && k < TL_OPTIM_MAX_STATES ? opt->slots[i].state[k] : NULL;
}

tl_tensor *tl_optimizer_master(const tl_optimizer *opt, int i) {
    return i >= 0 && i < opt->count ? opt->slots[i].master : NULL;
}

tl_status tl_optimizer_restore(tl_optimizer *opt, int64_t steps) {
    tl_ctx *ctx = opt->ctx;
    tl_place before = ctx->place;
    if (steps < 0)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "an optimizer after %lld steps; 0 or more would work",
                           (long long)steps);
    opt->steps = steps;
    tl_scope_begin(ctx);
    for (int i = 0; i < opt->count && steps > 0 && ctx->error.status == TL_OK; i++) {
        ctx->place.region = opt->slots[i].parameter->storage->region;
        ctx->place.module = opt->slots[i].parameter->storage->module;
        make_states(opt, &opt->slots[i]);
    }
    tl_scope_end(ctx);
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    return ctx->error.status;
}

tl_status tl_optimizer_refresh(tl_optimizer *opt) {
    tl_ctx *ctx = opt->ctx;
    tl_phase before = tl_phase_get(ctx);
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_LOAD);
    tl_scope_begin(ctx);
    for (int i = 0; i < opt->count && ctx->error.status == TL_OK; i++) {
        tl_slot *s = &opt->slots[i];
        if (!s->master)
            continue;
        tl_free(s->master); /* first, so that no more is held than before */
        s->master = NULL;
        (void)add_master(opt, s); /* the context's error says */
    }
    tl_scope_end(ctx);
    tl_phase_set(ctx, before);
    ctx->recording = recording;
    return ctx->error.status;
}
