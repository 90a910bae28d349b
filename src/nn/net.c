/* Nets: built from a description by their family's code; parameters named, initialised and counted here. */
#include "nn/lora.h"
#include "nn/names.h"
#include "nn/start.h"
#include "tally/init.h"

#include "tensor/ctx.h"

#include <stdio.h>
#include <string.h>

double tl_square_root(double x) { return __builtin_sqrt(x); }

tl_positions tl_positions_of(const tl_model *model) {
    if (model->positions != TL_POSITIONS_OF_FAMILY)
        return model->positions;
    return model->learned_positions ? TL_POSITIONS_LEARNED : TL_POSITIONS_ROTARY;
}

tl_norm_kind tl_norm_kind_of(const tl_model *model) {
    if (model->norm != TL_NORM_OF_FAMILY)
        return model->norm;
    return model->family == TL_FAMILY_GPT2 ? TL_NORM_LAYER : TL_NORM_RMS;
}

static tl_dim sized(tl_ctx *ctx, const char *symbol, int64_t value, const char *source) {
    return value > 0 ? tl_dim_symbol(ctx, symbol, value, source) : tl_dim_of(0);
}

static void expert_symbols(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    const tl_model *m = &net->model;
    tl_symbols *s = &net->symbols;
    s->E = tl_dim_symbol(ctx, "E", m->experts, m->source_experts.text);
    s->k = tl_dim_symbol(ctx, "k", m->experts_per_token, "experts of a token");
    s->Fe = tl_dim_symbol(ctx, "Fe", m->expert_ff, m->source_expert_ff.text);
    s->Fs = sized(ctx, "Fs", m->shared_ff, "shared experts");
}

static void latent_symbols(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    const tl_model *m = &net->model;
    tl_symbols *s = &net->symbols;
    s->Rq = sized(ctx, "Rq", m->q_rank, "rank of queries");
    s->Rkv = tl_dim_symbol(ctx, "Rkv", m->kv_rank, "rank of keys and values");
    s->Kn = tl_dim_symbol(ctx, "Kn", m->qk_nope, "the still part of a key");
    s->Kr = tl_dim_symbol(ctx, "Kr", m->qk_rope, "the turning part of a key");
    s->Kv = tl_dim_symbol(ctx, "Kv", m->value_size, "size of a value");
    s->K = tl_dim_add(ctx, s->Kn, s->Kr);
}

/* CS336 writes K as D/H and has no grouped heads; llama's head size and groups are symbols of their own. */
static void make_symbols(tl_net *net) {
    tl_ctx *ctx = net->ctx;
    const tl_model *m = &net->model;
    tl_symbols *s = &net->symbols;
    s->N = tl_dim_symbol(ctx, "N", m->layers, m->source_layers.text);
    s->D = tl_dim_symbol(ctx, "D", m->width, m->source_width.text);
    if (!tl_names_of(m))
        return;
    bool even = m->kv_heads == m->heads && m->head_size * m->heads == m->width && m->kv_rank == 0;
    bool plain = even && (tl_names_of(m)->one_head_symbol || m->rope_interleaved);
    s->H = tl_dim_symbol(ctx, "H", m->heads, m->source_heads.text);
    s->G = plain || m->kv_rank > 0 ? s->H : tl_dim_symbol(ctx, "G", m->kv_heads, m->source_kv_heads.text);
    if (m->kv_rank > 0)
        latent_symbols(net);
    else
        s->K = plain ? tl_dim_div(ctx, s->D, s->H) : tl_dim_symbol(ctx, "K", m->head_size, m->source_head_size.text);
    s->F = sized(ctx, "F", m->ff, m->source_ff.text);
    s->V = tl_dim_symbol(ctx, "V", m->vocab, m->source_vocab.text);
    if (tl_positions_of(m) == TL_POSITIONS_LEARNED)
        s->C = tl_dim_symbol(ctx, "C", m->context, m->source_context.text);
    s->R = m->rotary_size > 0 && m->rotary_size < m->head_size
               ? tl_dim_symbol(ctx, "R", m->rotary_size, "of K, what turns")
               : s->K;
    if (m->experts > 0)
        expert_symbols(net);
    s->Gg = sized(ctx, "Gg", m->global_kv_heads, "key/value heads of global layers");
    s->Kg = sized(ctx, "Kg", m->global_head_size, "head size of global layers");
    s->Dl = sized(ctx, "Dl", m->layer_input_size, "width of a layer's own embeddings");
    s->Vl = sized(ctx, "Vl", m->layer_input_vocab, "vocabulary of the layers' own embeddings");
    s->De = m->embedding_size > 0 ? tl_dim_symbol(ctx, "De", m->embedding_size, "width of the embeddings") : s->D;
}

tl_net *tl_net_new(tl_ctx *ctx, const tl_model *model, tl_dtype dtype) {
    return tl_net_new_as(ctx, model, dtype, NULL);
}

tl_net *tl_net_new_as(tl_ctx *ctx, const tl_model *model, tl_dtype dtype, const char *init) {
    return tl_net_new_lora(ctx, model, dtype, init, NULL);
}

/* False: the context's error. Options that ask for nothing are none. */
static bool adapters_begin(tl_net *net, const tl_lora_options *lora) {
    if (!lora)
        return true;
    bool nothing = lora->rank == 0 && lora->prefix == 0 && lora->base == TL_LORA_PLAIN;
    return nothing ? tl_lora_check(lora, &net->ctx->error) == TL_OK : tl_lora_begin(net, lora);
}

tl_net *tl_net_new_lora(tl_ctx *ctx, const tl_model *model, tl_dtype dtype, const char *init,
                        const tl_lora_options *lora) {
    tl_init_scheme scheme;
    if (ctx->error.status != TL_OK || tl_model_check(model, &ctx->error) != TL_OK ||
        tl_scheme_read(ctx, init, &scheme) != TL_OK)
        return NULL;
    if (!tl_dtype_is_float(dtype)) {
        tl_ctx_fail(ctx, TL_ERR_DTYPE, "a model in %s; f64, f32, bf16 or f16 would work", tl_dtype_name(dtype));
        return NULL;
    }
    if (model->not_computed[0] && !tl_ctx_is_meta(ctx)) {
        tl_ctx_fail(ctx, TL_ERR_UNSUPPORTED,
                    "%s has %s, which is planned but not computed: its results would be another model's", model->name,
                    model->not_computed);
        return NULL;
    }
    tl_net *net = tl_host_alloc(ctx, sizeof *net);
    if (!net)
        return NULL;
    net->ctx = ctx;
    net->model = *model;
    net->init = scheme;
    net->dtype = dtype;
    net->code = tl_names_of(model) ? &tl_decoder : &tl_family_cruncher;
    net->blocks = tl_host_alloc(ctx, (size_t)model->layers * sizeof *net->blocks);
    tl_phase before = tl_phase_get(ctx);
    bool recording = ctx->recording;
    ctx->recording = false;
    tl_phase_set(ctx, TL_PHASE_INIT);
    tl_scope_begin(ctx);
    make_symbols(net);
    bool ok = net->blocks && adapters_begin(net, lora) && net->code->build(net) && (!net->lora || tl_lora_finish(net));
    tl_scope_end(ctx);
    tl_phase_set(ctx, before);
    ctx->recording = recording;
    if (!ok || ctx->error.status != TL_OK) {
        tl_net_free(net);
        return NULL;
    }
    return net;
}

void tl_net_free(tl_net *net) {
    if (!net)
        return;
    tl_ctx *ctx = net->ctx;
    tl_net_fp8_free(net);
    tl_net_lora_free(net);
    tl_net_let_go(net);
    for (int i = 0; i < net->count; i++) {
        tl_tensor_clear_grad(net->parameters[i].tensor);
        tl_free(net->parameters[i].tensor);
        tl_host_free(ctx, (char *)(uintptr_t)net->parameters[i].name, strlen(net->parameters[i].name) + 1);
    }
    for (int i = 0; net->scales && i < net->count; i++)
        tl_free(net->scales[i]);
    tl_free(net->slopes);
    tl_host_free(ctx, net->scales, net->scales ? (size_t)net->count * sizeof *net->scales : 0);
    tl_host_free(ctx, net->parameters, (size_t)net->capacity * sizeof *net->parameters);
    tl_host_free(ctx, net->blocks, (size_t)net->model.layers * sizeof *net->blocks);
    tl_host_free(ctx, net, sizeof *net);
}

const tl_model *tl_net_model(const tl_net *net) { return &net->model; }

const tl_symbols *tl_net_symbols(const tl_net *net) { return &net->symbols; }

int tl_net_parameters(const tl_net *net, const tl_parameter **list) {
    *list = net->parameters;
    return net->count;
}

tl_tensor *tl_net_find(const tl_net *net, const char *name) {
    for (int i = 0; i < net->count; i++)
        if (strcmp(net->parameters[i].name, name) == 0)
            return net->parameters[i].tensor;
    return NULL;
}

static int64_t elements(const tl_parameter *p) {
    int64_t n = 0;
    if (!p->full)
        return tl_tensor_count(p->tensor);
    tl_shape_count(p->full, &n);
    return n;
}

int64_t tl_net_count_trainable(const tl_net *net) {
    int64_t n = 0;
    for (int i = 0; i < net->count; i++)
        n += net->parameters[i].frozen ? 0 : elements(&net->parameters[i]);
    return n;
}

/* The experts' weights and biases have their axis in front. */
static bool is_of_experts(const tl_net *net, const tl_parameter *p) {
    const tl_shape *shape = p->full ? p->full : &p->tensor->shape;
    return net->model.experts > 0 && strstr(p->name, ".experts.") && shape->dim[0].size == net->model.experts;
}

void tl_net_count(const tl_net *net, tl_parameter_count *count) {
    memset(count, 0, sizeof *count);
    for (int i = 0; i < net->count; i++) {
        const tl_parameter *p = &net->parameters[i];
        int64_t n = elements(p);
        count->unique += n;
        count->active += is_of_experts(net, p) ? n / net->model.experts * net->model.experts_per_token : n;
        if (!p->embedding)
            count->non_embedding += n;
    }
    count->untied = count->unique;
    if (net->model.tied && net->token_table)
        count->untied += tl_tensor_count(net->token_table);
}

void tl_net_train(tl_net *net, bool on) { net->training = on; }

tl_status tl_net_recompute(tl_net *net, tl_recompute recompute) {
    bool every = recompute.kind == TL_RECOMPUTE_EVERY;
    if ((unsigned)recompute.kind > TL_RECOMPUTE_EVERY || (every ? recompute.every < 1 : recompute.every != 0))
        return tl_ctx_fail(net->ctx, TL_ERR_ARGUMENT,
                           "recompute of kind %d with every %lld; every 1 or more with kind every, else 0, would work",
                           (int)recompute.kind, (long long)recompute.every);
    if (recompute.kind != TL_RECOMPUTE_NONE && net->model.family == TL_FAMILY_CRUNCHER)
        return tl_ctx_fail(net->ctx, TL_ERR_UNSUPPORTED,
                           "recompute of %s, which has no blocks and no attention, changes nothing; none would work",
                           net->model.name);
    net->recompute = recompute;
    return TL_OK;
}

tl_status tl_recompute_parse(const char *text, tl_recompute *recompute, tl_error *error) {
    static const char *const names[] = {"none", "selective", "full"};
    for (int kind = 0; kind < 3; kind++)
        if (strcmp(text, names[kind]) == 0) {
            *recompute = (tl_recompute){(tl_recompute_kind)kind, 0};
            return TL_OK;
        }
    tl_recompute every = {TL_RECOMPUTE_EVERY, 0};
    bool digits = strncmp(text, "every:", 6) == 0 && text[6];
    for (const char *at = text + 6; digits && *at; at++)
        digits = *at >= '0' && *at <= '9' && tl_mul_i64(every.every, 10, &every.every) &&
                 tl_add_i64(every.every, *at - '0', &every.every);
    if (!digits || every.every < 1)
        return tl_fail(
            error, TL_ERR_ARGUMENT,
            "recompute \"%.80s\"; none, selective, full or every:K (a layer in K, such as every:4) would work", text);
    *recompute = every;
    return TL_OK;
}

char *tl_recompute_text(tl_recompute recompute, char *buffer, size_t size) {
    static const char *const names[] = {"none", "selective", "full"};
    if (recompute.kind == TL_RECOMPUTE_EVERY)
        snprintf(buffer, size, "every:%lld", (long long)recompute.every);
    else
        snprintf(buffer, size, "%s", (unsigned)recompute.kind < 3 ? names[recompute.kind] : "?");
    return buffer;
}

const tl_choices *tl_net_choices(const tl_net *net) { return &net->choices; }

void tl_net_let_go(tl_net *net) {
    tl_free_rotary_tables(net);
    tl_free_masks(net);
    for (int i = 0; i < net->n_held; i++)
        tl_free(net->held[i]);
    net->n_held = 0;
}

const char *tl_net_not_packed(const tl_net *net) {
    if (!net->names)
        return "has no sequence";
    for (int64_t i = 0; i < net->model.layers; i++)
        if (net->model.layer[i] & TL_LAYER_CHUNKED)
            return "sees chunks of a row, which no document restarts";
    if (net->slopes && net->model.alibi_scaled)
        return "has ALiBi rounded to bf16, which depends on where in a row a document stands";
    return NULL;
}

tl_status tl_net_documents(tl_net *net, tl_tensor *positions) {
    const char *why = positions ? tl_net_not_packed(net) : NULL;
    if (why)
        return tl_ctx_fail(net->ctx, TL_ERR_UNSUPPORTED, "documents packed in a row of %s, which %s", net->model.name,
                           why);
    net->positions = positions;
    return TL_OK;
}

static bool positions_fit(const tl_net *net, const tl_tensor *tokens) {
    const tl_tensor *p = net->positions;
    char text[200], of[200];
    if (!p || !tokens || tl_shape_equal(&p->shape, &tokens->shape))
        return true;
    tl_ctx_fail(net->ctx, TL_ERR_SHAPE, "positions %s of the tokens %s; one a token would work",
                tl_tensor_text(p, text, sizeof text), tl_tensor_text(tokens, of, sizeof of));
    return false;
}

static tl_tensor *hidden_of(tl_net *net, tl_tensor *input) {
    tl_net_let_go(net);
    if (!positions_fit(net, input))
        return NULL;
    if (!input || (net->names && (!tl_make_rotary_tables(net, input) || !tl_make_masks(net, input))))
        return NULL;
    return net->code->hidden(net, input);
}

tl_tensor *tl_net_forward(tl_net *net, tl_tensor *input) {
    tl_tensor *hidden = hidden_of(net, input), *output = hidden ? net->code->head(net, hidden) : NULL;
    if (!net->ctx->recording) /* else backward may run layers again */
        tl_net_let_go(net);
    return output;
}

/* The loss holds the output projection: cruncher's has none. */
static bool projects(const tl_net *net) { return net->names && tl_loss_projects(net->choices.loss); }

tl_tensor *tl_net_loss(tl_net *net, tl_tensor *input, tl_tensor *target) {
    tl_ctx *ctx = net->ctx;
    tl_tensor *loss = NULL;
    tl_phase_set(ctx, TL_PHASE_FORWARD);
    tl_scope_begin(ctx);
    tl_tensor *output = projects(net) ? hidden_of(net, input) : tl_net_forward(net, input);
    tl_phase_set(ctx, TL_PHASE_LOSS);
    if (output && target && projects(net))
        loss = tl_projected_loss(net, output, target);
    else if (output && target)
        loss = net->code->loss(net, output, target);
    tl_tensor *carried = NULL;
    tl_scope_end_into(ctx, &carried, loss);
    if (!ctx->recording)
        tl_net_let_go(net);
    return carried;
}

/* ---- parameters ---- */

tl_tensor *tl_net_parameter(tl_net *net, const char *name, tl_shape shape, tl_start start, bool decay, bool embedding) {
    tl_ctx *ctx = net->ctx;
    if (!tl_host_grow(ctx, &net->parameters, sizeof *net->parameters, net->count + 1, &net->capacity))
        return NULL;
    tl_tensor *t = tl_keep(tl_empty(ctx, net->dtype, shape, TL_PARAM));
    char *copy = t ? tl_host_text(ctx, name) : NULL;
    if (!copy) {
        tl_free(t);
        return NULL;
    }
    net->parameters[net->count++] = (tl_parameter){.name = copy, .tensor = t, .decay = decay, .embedding = embedding};
    if (tl_scheme_start(net, t, name, start) != TL_OK)
        return NULL;
    tl_tensor_require_grad(t, true);
    return t;
}

bool tl_net_norm(tl_net *net, tl_norm *norm, const char *path, tl_dim size) {
    char name[160];
    tl_shape shape = TL_SHAPE(net->ctx, size);
    norm->kind = tl_norm_kind_of(&net->model);
    if (norm->kind == TL_NORM_LAYER_PLAIN)
        return true;
    /* Gemma's gain is 1 + weight, and its weights start at 0. */
    tl_start start = {norm->kind == TL_NORM_RMS_ONE ? TL_START_ZERO : TL_START_ONE, 0};
    snprintf(name, sizeof name, "%s.weight", path);
    norm->gain = tl_net_parameter(net, name, shape, start, false, false);
    if (!norm->gain || norm->kind != TL_NORM_LAYER)
        return norm->gain != NULL;
    snprintf(name, sizeof name, "%s.bias", path);
    norm->bias = tl_net_parameter(net, name, shape, (tl_start){TL_START_ZERO, 0}, false, false);
    return norm->bias != NULL;
}

tl_tensor *tl_net_linear(tl_net *net, const char *path, tl_dim out, tl_dim in, double std, bool bias,
                         tl_tensor **bias_out) {
    char name[160];
    snprintf(name, sizeof name, "%s.weight", path);
    tl_tensor *w =
        tl_net_parameter(net, name, TL_SHAPE(net->ctx, out, in), (tl_start){TL_START_NORMAL, std}, true, false);
    if (w && !tl_lora_settle(net, net->count - 1))
        return NULL;
    if (w && bias) {
        snprintf(name, sizeof name, "%s.bias", path);
        *bias_out = tl_net_parameter(net, name, TL_SHAPE(net->ctx, out), (tl_start){TL_START_ZERO, 0}, false, false);
        if (!*bias_out)
            return NULL;
    }
    return w;
}
