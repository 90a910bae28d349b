/* Optimizers: which states a parameter has, when they appear, and the one update op of each. */
#include "tally/optim.h"

#include "op/core.h"

tl_optimizer_options tl_optimizer_defaults(tl_optimizer_kind kind) {
    tl_optimizer_options o = {.kind = kind};
    switch (kind) {
    case TL_OPTIM_ADAMW:
        o.lr = 1e-3, o.beta1 = 0.9, o.beta2 = 0.999, o.epsilon = 1e-8, o.weight_decay = 0.01;
        break;
    case TL_OPTIM_ADAGRAD:
        o.lr = 1e-2, o.epsilon = 1e-5;
        break;
    case TL_OPTIM_SGD:
        o.lr = 1e-2;
        break;
    default:
        break;
    }
    return o;
}

const char *tl_optimizer_name(tl_optimizer_kind kind) {
    static const char *const names[] = {"none", "sgd", "adagrad", "adamw", "adam", "rmsprop", "adamw8bit"};
    return (unsigned)kind < TL_OPTIM_KINDS ? names[kind] : "?";
}

typedef struct slot {
    tl_tensor *parameter, *master, *state[TL_OPTIM_MAX_STATES];
    bool decay;
} slot;

struct tl_optimizer {
    tl_ctx *ctx;
    tl_optimizer_options options;
    slot *slots;
    int count, n_states;
    int64_t steps;
};

static int states_of(const tl_optimizer_options *o) {
    switch (o->kind) {
    case TL_OPTIM_ADAMW:
        return 2;
    case TL_OPTIM_ADAGRAD:
        return 1;
    case TL_OPTIM_SGD:
        return o->momentum != 0 ? 1 : 0;
    default:
        return 0;
    }
}

/* An option that this optimizer has no use for is refused, never ignored. */
static tl_status check_effect(tl_ctx *ctx, const tl_optimizer_options *o) {
    const char *name = NULL, *of = NULL;
    if (o->cs336_order && o->kind != TL_OPTIM_ADAMW)
        name = "cs336_order", of = "adamw";
    else if (o->nesterov && (o->kind != TL_OPTIM_SGD || o->momentum == 0))
        name = "nesterov", of = "sgd with momentum";
    else if (o->momentum != 0 && o->kind != TL_OPTIM_SGD)
        name = "momentum", of = "sgd";
    else if (o->weight_decay != 0 && o->kind == TL_OPTIM_ADAGRAD)
        name = "weight_decay", of = "adamw and sgd";
    if (!name)
        return TL_OK;
    return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "%s has no %s; %s would take it", tl_optimizer_name(o->kind), name, of);
}

static tl_status check(tl_ctx *ctx, const tl_optimizer_options *o) {
    const char *name = NULL;
    double value = 0;
    if (o->kind > TL_OPTIM_ADAMW)
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED, "%s is not in this build", tl_optimizer_name(o->kind));
    if (o->n_groups != 0 || o->states != TL_STATES_DEFAULT || o->alpha != 0 || o->centered || o->epsilon_outside)
        return tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED,
                           "groups, formats of states, alpha, centered and epsilon_outside are not in this build");
    if (!(o->lr >= 0) || o->lr > 1e30)
        name = "lr", value = o->lr;
    else if (!(o->weight_decay >= 0))
        name = "weight_decay", value = o->weight_decay;
    else if (!(o->momentum >= 0 && o->momentum < 1))
        name = "momentum", value = o->momentum;
    else if (o->kind == TL_OPTIM_ADAMW && !(o->beta1 >= 0 && o->beta1 < 1))
        name = "beta1", value = o->beta1;
    else if (o->kind == TL_OPTIM_ADAMW && !(o->beta2 >= 0 && o->beta2 < 1))
        name = "beta2", value = o->beta2;
    else if ((o->kind == TL_OPTIM_ADAMW || o->kind == TL_OPTIM_ADAGRAD) && !(o->epsilon >= 0))
        name = "epsilon", value = o->epsilon;
    if (!name)
        return check_effect(ctx, o);
    return tl_ctx_fail(ctx, TL_ERR_ARGUMENT,
                       "%s: %s is %g; betas and momentum lie in [0,1), the others are not negative",
                       tl_optimizer_name(o->kind), name, value);
}

/* A master copy is booked where its parameter lives, so that equal layers fold. */
static bool add_master(tl_optimizer *opt, slot *s) {
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

tl_optimizer *tl_optimizer_new(tl_ctx *ctx, const tl_parameter *parameters, int count,
                               const tl_optimizer_options *options) {
    if (ctx->error.status != TL_OK || check(ctx, options) != TL_OK)
        return NULL;
    for (int i = 0; i < count; i++)
        if (!parameters[i].tensor) {
            tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter %d has no tensor", i);
            return NULL;
        }
    tl_optimizer *opt = tl_host_alloc(ctx, sizeof *opt);
    if (!opt)
        return NULL;
    opt->ctx = ctx;
    opt->options = *options;
    opt->count = count;
    opt->n_states = states_of(options);
    opt->slots = tl_host_alloc(ctx, (size_t)count * sizeof *opt->slots);
    bool ok = opt->slots != NULL, recording = ctx->recording;
    ctx->recording = false;
    tl_scope_begin(ctx);
    for (int i = 0; ok && i < count; i++) {
        slot *s = &opt->slots[i];
        s->parameter = parameters[i].tensor;
        s->decay = parameters[i].decay || options->decay_all;
        for (int j = 0; j < i; j++)
            if (opt->slots[j].parameter == s->parameter) {
                tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "parameter %s is given twice; a shared parameter is updated once",
                            parameters[i].name);
                ok = false;
            }
        if (ok && options->master && options->kind != TL_OPTIM_NONE)
            ok = add_master(opt, s);
    }
    tl_scope_end(ctx);
    ctx->recording = recording;
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

static tl_status make_states(tl_optimizer *opt, slot *s) {
    tl_dtype dtype = opt->options.state_f32 || s->master ? TL_F32 : s->parameter->dtype;
    if (s->parameter->dtype == TL_F64)
        dtype = TL_F64;
    for (int k = 0; k < opt->n_states; k++) {
        if (s->state[k])
            continue;
        s->state[k] = tl_keep(tl_empty(opt->ctx, dtype, s->parameter->shape, TL_OPTIM));
        if (!s->state[k] || !tl_fill_(s->state[k], 0.0, TL_HERE))
            return opt->ctx->error.status;
    }
    return TL_OK;
}

static tl_status update(tl_optimizer *opt, slot *s, double lr) {
    const tl_optimizer_options *o = &opt->options;
    tl_tensor *target = s->master ? s->master : s->parameter, *copy = s->master ? s->parameter : NULL;
    tl_tensor *grad = s->parameter->grad;
    double decay = s->decay ? o->weight_decay : 0.0;
    bool first = o->kind == TL_OPTIM_SGD && o->momentum != 0 && !s->state[0];
    tl_status status = make_states(opt, s);
    if (status != TL_OK)
        return status;
    if (o->kind == TL_OPTIM_ADAMW) {
        tl_adamw_options a = {lr, o->beta1, o->beta2, o->epsilon, decay, opt->steps, o->cs336_order};
        return tl_adamw_update_(target, grad, s->state[0], s->state[1], copy, &a, TL_HERE);
    }
    if (o->kind == TL_OPTIM_ADAGRAD)
        return tl_adagrad_update_(target, grad, s->state[0], copy, lr, o->epsilon, TL_HERE);
    return tl_sgd_update_(target, grad, s->state[0], copy, lr, o->momentum, decay, o->nesterov, first, TL_HERE);
}

tl_status tl_optimizer_step(tl_optimizer *opt, double lr) {
    if (!opt)
        return TL_ERR_ARGUMENT;
    tl_ctx *ctx = opt->ctx;
    if (ctx->error.status != TL_OK)
        return ctx->error.status;
    if (!(lr >= 0) || lr > 1e30)
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "a learning rate of %g; it must be finite and not negative", lr);
    bool recording = ctx->recording;
    tl_place before = ctx->place;
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_STEP);
    opt->steps++;
    tl_status status = TL_OK;
    for (int i = 0; i < opt->count && status == TL_OK && opt->options.kind != TL_OPTIM_NONE; i++) {
        slot *s = &opt->slots[i];
        if (!s->parameter->grad)
            continue;
        ctx->place.region = s->parameter->storage->region;
        ctx->place.module = s->parameter->storage->module;
        tl_scope_begin(ctx);
        status = update(opt, s, lr);
        tl_scope_end(ctx);
    }
    ctx->place.region = before.region;
    ctx->place.module = before.module;
    ctx->recording = recording;
    return status;
}

int64_t tl_optimizer_steps(const tl_optimizer *opt) { return opt->steps; }

int tl_optimizer_states(const tl_optimizer *opt, int i) { return i >= 0 && i < opt->count ? opt->n_states : 0; }

const char *tl_optimizer_state_name(const tl_optimizer *opt, int k) {
    static const char *const adam[] = {"exp_avg", "exp_avg_sq"};
    if (k < 0 || k >= opt->n_states)
        return NULL;
    return opt->options.kind == TL_OPTIM_ADAMW ? adam[k]
           : opt->options.kind == TL_OPTIM_SGD ? "momentum_buffer"
                                               : "sum";
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
