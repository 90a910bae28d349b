/* How parameters start: the fills, and a net's scheme of them by name. */
#include "tally/init.h"

#include "base/decimal.h"
#include "nn/names.h"
#include "nn/start.h"
#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

static tl_status done(const tl_tensor *t, tl_tensor *handle) {
    tl_status status = t ? t->ctx->error.status : TL_ERR_ARGUMENT;
    tl_release(handle);
    return status;
}

tl_status tl_init_zeros(tl_tensor *t) { return done(t, tl_fill(t, 0.0)); }

tl_status tl_init_ones(tl_tensor *t) { return done(t, tl_fill(t, 1.0)); }

tl_status tl_init_normal(tl_tensor *t, double mean, double std, const char *name) {
    return done(t, tl_normal(t, mean, std, name, 0));
}

tl_status tl_init_truncated_normal(tl_tensor *t, double mean, double std, const char *name) {
    return done(t, tl_truncated_normal(t, mean, std, 3.0, name, 0));
}

tl_status tl_init_uniform(tl_tensor *t, double low, double high, const char *name) {
    return done(t, tl_uniform(t, low, high, name, 0));
}

/* ---- by fans ---- */

static tl_status fans(tl_tensor *t, double *in, double *out) {
    if (!t)
        return TL_ERR_ARGUMENT;
    if (t->shape.ndim < 2)
        return tl_ctx_fail(t->ctx, TL_ERR_SHAPE,
                           "a tensor of %d axes has no fan_in and fan_out; [out, in] or more would work",
                           t->shape.ndim);
    double field = 1;
    for (int d = 2; d < t->shape.ndim; d++)
        field *= (double)t->shape.dim[d].size;
    *in = (double)t->shape.dim[1].size * field;
    *out = (double)t->shape.dim[0].size * field;
    return TL_OK;
}

/* σ = gain·√(over/fan); of an empty tensor, which has no elements to start, 0. */
static tl_status spread(tl_tensor *t, double gain, double over, double fan, bool uniform, const char *name) {
    if (!(gain >= 0))
        return tl_ctx_fail(t->ctx, TL_ERR_ARGUMENT, "an initialisation of gain %g; 0 or more would work", gain);
    double std = fan > 0 ? gain * tl_square_root(over / fan) : 0, bound = tl_square_root(3.0) * std;
    return uniform ? tl_init_uniform(t, -bound, bound, name) : tl_init_normal(t, 0.0, std, name);
}

static tl_status xavier(tl_tensor *t, double gain, bool uniform, const char *name) {
    double in = 0, out = 0;
    tl_status status = fans(t, &in, &out);
    return status == TL_OK ? spread(t, gain, 2.0, in + out, uniform, name) : status;
}

static tl_status kaiming(tl_tensor *t, tl_fan fan, double gain, bool uniform, const char *name) {
    double in = 0, out = 0;
    tl_status status = fans(t, &in, &out);
    return status == TL_OK ? spread(t, gain, 1.0, fan == TL_FAN_OUT ? out : in, uniform, name) : status;
}

tl_status tl_init_xavier_normal(tl_tensor *t, double gain, const char *name) { return xavier(t, gain, false, name); }

tl_status tl_init_xavier_uniform(tl_tensor *t, double gain, const char *name) { return xavier(t, gain, true, name); }

tl_status tl_init_kaiming_normal(tl_tensor *t, tl_fan fan, double gain, const char *name) {
    return kaiming(t, fan, gain, false, name);
}

tl_status tl_init_kaiming_uniform(tl_tensor *t, tl_fan fan, double gain, const char *name) {
    return kaiming(t, fan, gain, true, name);
}

double tl_init_gain(tl_gain gain, double slope) {
    switch (gain) {
    case TL_GAIN_TANH:
        return 5.0 / 3.0;
    case TL_GAIN_RELU:
        return tl_square_root(2.0);
    case TL_GAIN_LEAKY_RELU:
        return tl_square_root(2.0 / (1.0 + slope * slope));
    case TL_GAIN_SELU:
        return 0.75;
    default:
        return 1.0;
    }
}

tl_status tl_init_residual(tl_tensor *t, double std, int64_t layers, const char *name) {
    if (!t)
        return TL_ERR_ARGUMENT;
    if (layers < 1)
        return tl_ctx_fail(t->ctx, TL_ERR_ARGUMENT, "a residual stream of %lld layers; 1 or more would work",
                           (long long)layers);
    return tl_init_normal(t, 0.0, std / tl_square_root(2.0 * (double)layers), name);
}

/* ---- a net's scheme ---- */

static const struct {
    const char *name;
    double value; /* when none is given; 0: takes none */
} schemes[] = {
    [TL_SCHEME_DEFAULT] = {"default", 0},      [TL_SCHEME_GPT2] = {"gpt2", 0.02},
    [TL_SCHEME_NORMAL] = {"normal", 0.02},     [TL_SCHEME_TRUNCATED] = {"truncated", 0.02},
    [TL_SCHEME_UNIFORM] = {"uniform", 0.0346}, [TL_SCHEME_CS336] = {"cs336", 0},
    [TL_SCHEME_XAVIER] = {"xavier", 0},        [TL_SCHEME_XAVIER_NORMAL] = {"xavier-normal", 0},
    [TL_SCHEME_KAIMING] = {"kaiming", 0},      [TL_SCHEME_KAIMING_NORMAL] = {"kaiming-normal", 0},
    [TL_SCHEME_ZEROS] = {"zeros", 0},
};

tl_status tl_scheme_read(tl_ctx *ctx, const char *text, tl_init_scheme *scheme) {
    *scheme = (tl_init_scheme){TL_SCHEME_DEFAULT, 0};
    if (!text)
        return TL_OK;
    size_t length = strcspn(text, ":");
    for (int i = 0; i < (int)(sizeof schemes / sizeof *schemes); i++) {
        if (strlen(schemes[i].name) != length || memcmp(schemes[i].name, text, length) != 0)
            continue;
        scheme->kind = (tl_scheme_kind)i;
        scheme->value = schemes[i].value;
        if (text[length] == '\0')
            return TL_OK;
        tl_decimal number;
        const char *rest = NULL;
        bool read = tl_decimal_parse(text + length + 1, &number, &rest) == TL_DECIMAL_OK && *rest == '\0';
        scheme->value = read ? tl_decimal_double(&number) : -1;
        if (schemes[i].value > 0 && scheme->value > 0 && scheme->value < 1e6)
            return TL_OK;
        return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "initialisation \"%.60s\": %s", text,
                           schemes[i].value > 0 ? "the number after the colon must be above 0 and below 1e6"
                                                : "this one takes no number");
    }
    return tl_ctx_fail(ctx, TL_ERR_ARGUMENT, "initialisation \"%.60s\": there is none of that name; there are: %s",
                       text, TL_INIT_NAMES);
}

static bool ends_in_one_of(const char *name, const char *const *ends) {
    size_t length = strlen(name);
    for (; *ends; ends++) {
        size_t n = strlen(*ends);
        if (length >= n && strcmp(name + length - n, *ends) == 0)
            return true;
    }
    return false;
}

static tl_status as_family(tl_tensor *t, const char *name, tl_start start) {
    switch (start.kind) {
    case TL_START_NORMAL:
        return tl_init_normal(t, 0.0, start.std, name);
    case TL_START_ONE:
        return tl_init_ones(t);
    default:
        return tl_init_zeros(t);
    }
}

/* A weight's fans; of all experts' weights, [E, out, in] and, published fused, [E, in, out], an expert's. */
static tl_status fans_of(const tl_net *net, tl_tensor *t, const char *name, double *in, double *out) {
    static const char *const apart[] = {".weight", NULL};
    if (t->shape.ndim != 3)
        return fans(t, in, out);
    bool fused = !ends_in_one_of(name, apart) && !net->names->fused_rows;
    *in = (double)t->shape.dim[fused ? 1 : 2].size;
    *out = (double)t->shape.dim[fused ? 2 : 1].size;
    return TL_OK;
}

/* Which weights are what is read off the names of the published checkpoints, which are the nets' own. */
tl_status tl_scheme_start(const tl_net *net, tl_tensor *t, const char *name, tl_start start) {
    static const char *const tables[] = {
        "wte.weight",      "wpe.weight", "embed_tokens.weight", "embed_positions.weight", "word_embeddings.weight",
        "embed_in.weight", NULL};
    static const char *const residual[] = {"c_proj.weight",
                                           "o_proj.weight",
                                           "down_proj.weight",
                                           "dense.weight",
                                           "out_proj.weight",
                                           "fc2.weight",
                                           "fc_out.weight",
                                           "w2.weight",
                                           "dense_4h_to_h.weight",
                                           ".down_proj",
                                           NULL};
    bool table = ends_in_one_of(name, tables);
    double value = net->init.value, in = 0, out = 0;
    if (start.kind != TL_START_NORMAL || t->shape.ndim < 2)
        return as_family(t, name, start);
    tl_status status = fans_of(net, t, name, &in, &out);
    if (status != TL_OK)
        return status;
    switch (net->init.kind) {
    case TL_SCHEME_GPT2:
        return ends_in_one_of(name, residual) ? tl_init_residual(t, value, net->model.layers, name)
                                              : tl_init_normal(t, 0.0, value, name);
    case TL_SCHEME_NORMAL:
        return tl_init_normal(t, 0.0, value, name);
    case TL_SCHEME_TRUNCATED:
        return tl_init_truncated_normal(t, 0.0, value, name);
    case TL_SCHEME_UNIFORM:
        return tl_init_uniform(t, -value, value, name);
    case TL_SCHEME_CS336:
        return tl_init_truncated_normal(t, 0.0, table ? 1.0 : tl_square_root(2.0 / (in + out)), name);
    case TL_SCHEME_XAVIER:
    case TL_SCHEME_XAVIER_NORMAL:
        return table ? as_family(t, name, start)
                     : spread(t, 1.0, 2.0, in + out, net->init.kind == TL_SCHEME_XAVIER, name);
    case TL_SCHEME_KAIMING:
    case TL_SCHEME_KAIMING_NORMAL:
        return table ? as_family(t, name, start)
                     : spread(t, tl_init_gain(TL_GAIN_RELU, 0), 1.0, in, net->init.kind == TL_SCHEME_KAIMING, name);
    case TL_SCHEME_ZEROS:
        return tl_init_zeros(t);
    default:
        return as_family(t, name, start);
    }
}
