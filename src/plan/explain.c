/* Sums over what a run booked, as formulas: parameters and counts of ops. */
#include "plan/explain.h"

#include "account/ledger.h"

#include <stdio.h>
#include <string.h>

/* ---- gathering ---- */

void tl_explain_free(tl_explain_sum *sum) {
    if (sum->term)
        tl_host_free(sum->run->ctx, sum->term, (size_t)sum->capacity * sizeof *sum->term);
    memset(sum, 0, sizeof *sum);
}

void tl_gather_begin(tl_gather *g, const tl_plan_run *run, tl_explain_sum *sum) {
    memset(sum, 0, sizeof *sum);
    sum->run = run;
    *g = (tl_gather){.ctx = run->ctx, .sum = sum};
}

static tl_explain_term *new_term(tl_gather *g, const char *pattern, const char *what) {
    tl_explain_sum *sum = g->sum;
    if (!tl_host_grow(g->ctx, &sum->term, sizeof *sum->term, sum->count + 1, &sum->capacity) ||
        !tl_host_grow(g->ctx, &g->fold, sizeof *g->fold, sum->count + 1, &g->capacity))
        return NULL;
    tl_fold *fold = tl_fold_new(g->ctx);
    if (!fold)
        return NULL;
    if (g->moment)
        tl_fold_at(fold, g->moment->region);
    tl_explain_term *t = &sum->term[sum->count];
    memset(t, 0, sizeof *t);
    snprintf(t->pattern, sizeof t->pattern, "%s", pattern);
    t->what = what;
    t->group = tl_explain_group(pattern);
    g->fold[sum->count++] = fold;
    return t;
}

void tl_gather_add(tl_gather *g, const char *pattern, const char *what, uint32_t region, tl_u128 count,
                   const tl_poly *formula) {
    tl_explain_sum *sum = g->sum;
    if (g->failed || (count == 0 && !formula))
        return;
    int i = 0;
    while (i < sum->count && (strncmp(sum->term[i].pattern, pattern, sizeof sum->term[i].pattern - 1) != 0 ||
                              strcmp(sum->term[i].what, what) != 0))
        i++;
    if (i == sum->count && !new_term(g, pattern, what)) {
        g->failed = true;
        return;
    }
    g->failed = !tl_add_u128(sum->term[i].value, count, &sum->term[i].value);
    if (g->failed)
        tl_ctx_fail(g->ctx, TL_ERR_OVERFLOW, "a sum of counts is beyond 128 bits");
    if (!formula && count > 0)
        formula = tl_poly_constant(g->ctx->space, (int64_t)count);
    tl_fold_add(g->fold[i], region, formula);
}

tl_status tl_explain_check(const tl_plan_run *run, const char *name, const tl_poly *formula, tl_u128 value,
                           tl_error *error) {
    tl_u128 found = 0;
    char left[TL_U128_DIGITS], right[TL_U128_DIGITS];
    tl_space *space = run->ctx->space;
    tl_status status = tl_poly_value(space, formula, NULL, 0, &found, error);
    if (status != TL_OK || found == value)
        return status;
    const char *text = tl_poly_text(space, formula, TL_FORMULA_SYMBOLS);
    return tl_fail(error, TL_ERR_STATE,
                   "the formula of %s, %.600s, gives %s and the ledger %s: a fault of this program, please report it",
                   name, text ? text : "?", tl_u128_text(found, left), tl_u128_text(value, right));
}

static tl_status finish_term(tl_gather *g, int i, bool parts, tl_error *error) {
    tl_explain_term *t = &g->sum->term[i];
    t->formula = tl_fold_total(g->fold[i]);
    if (!t->formula)
        return tl_fail(error, tl_ctx_status(g->ctx), "%s", tl_ctx_error(g->ctx)->message);
    if (parts) {
        tl_fold_term more[TL_EXPLAIN_PARTS + 1];
        int n = tl_fold_terms(g->fold[i], more, TL_EXPLAIN_PARTS + 1);
        if (tl_ctx_status(g->ctx) != TL_OK)
            return tl_fail(error, tl_ctx_status(g->ctx), "%s", tl_ctx_error(g->ctx)->message);
        const tl_poly *sum = tl_poly_constant(g->ctx->space, 0);
        for (int k = 0; k < n && n <= TL_EXPLAIN_PARTS; k++) {
            t->part[t->n_parts++] = more[k];
            sum = tl_poly_add(g->ctx->space, sum, tl_poly_mul(g->ctx->space, more[k].times, more[k].content));
        }
        if (t->n_parts && sum != t->formula) /* interned: equal ones are one */
            return tl_fail(error, TL_ERR_STATE,
                           "%s %s: its classes do not add up to its formula: a fault of this program", t->pattern,
                           t->what);
    }
    return tl_explain_check(g->sum->run, t->pattern[0] ? t->pattern : t->what, t->formula, t->value, error);
}

tl_status tl_gather_end(tl_gather *g, const char *name, bool parts, tl_error *error) {
    tl_explain_sum *sum = g->sum;
    tl_space *space = g->ctx->space;
    tl_status status = TL_OK;
    if (tl_ctx_status(g->ctx) != TL_OK)
        status = tl_fail(error, tl_ctx_status(g->ctx), "%s", tl_ctx_error(g->ctx)->message);
    sum->formula = tl_poly_constant(space, 0);
    for (int i = 0; i < sum->count && status == TL_OK; i++) {
        status = finish_term(g, i, parts, error);
        if (status == TL_OK && !tl_add_u128(sum->value, sum->term[i].value, &sum->value))
            status = tl_fail(error, TL_ERR_OVERFLOW, "%s: the sum is beyond 128 bits", name);
        sum->formula = tl_poly_add(space, sum->formula, sum->term[i].formula);
    }
    if (status == TL_OK && tl_space_error(space)->status != TL_OK)
        status = tl_fail(error, tl_space_error(space)->status, "%s", tl_space_error(space)->message);
    if (status == TL_OK)
        status = tl_explain_check(sum->run, name, sum->formula, sum->value, error);
    for (int i = 0; i < sum->count; i++)
        tl_fold_free(g->fold[i]);
    tl_host_free(g->ctx, g->fold, (size_t)g->capacity * sizeof *g->fold);
    g->fold = NULL;
    if (status != TL_OK)
        tl_explain_free(sum);
    return status;
}

/* ---- groups ---- */

static bool has_component(const char *path, const char *name) {
    size_t length = strlen(name);
    for (const char *at = path; *at;) {
        size_t n = strcspn(at, ".");
        if (n == length && memcmp(at, name, n) == 0)
            return true;
        at += n + (at[n] == '.');
    }
    return false;
}

/* In this order: what stands in the feed-forward is the feed-forward's, but for its experts and their router; norms within
 * attention are norms; and only attention has another c_proj. */
static const struct {
    const char *component, *group;
} groups_of[] = {
    {"experts", "experts"},
    {"router", "router"},
    {"gate", "router"},
    {"shared_expert", "shared experts"},
    {"shared_experts", "shared experts"},
    {"shared_expert_gate", "shared experts"},
    {"mlp", "ffn"},
    {"block_sparse_moe", "ffn"},
    {"feed_forward", "ffn"},
    {"fc1", "ffn"},
    {"fc2", "ffn"},
    {"q_norm", "norms"},
    {"v_norm", "norms"},
    {"post_feedforward_layernorm_1", "norms"},
    {"pre_feedforward_layernorm_2", "norms"},
    {"post_feedforward_layernorm_2", "norms"},
    {"k_norm", "norms"},
    {"per_layer_projection_norm", "norms"},
    {"post_per_layer_input_norm", "norms"},
    {"per_layer_inputs", "layer inputs"},
    {"embed_tokens_per_layer", "layer inputs"},
    {"per_layer_model_projection", "layer inputs"},
    {"per_layer_input_gate", "layer inputs"},
    {"per_layer_projection", "layer inputs"},
    {"qk_norm", "norms"},
    {"q_a_layernorm", "norms"},
    {"kv_a_layernorm", "norms"},
    {"c_attn", "qkv"},
    {"q_proj", "qkv"},
    {"k_proj", "qkv"},
    {"v_proj", "qkv"},
    {"qkv_proj", "qkv"},
    {"query_key_value", "qkv"},
    {"Wqkv", "qkv"},
    {"q_a_proj", "qkv"},
    {"q_b_proj", "qkv"},
    {"kv_a_proj_with_mqa", "qkv"},
    {"kv_b_proj", "qkv"},
    {"scores", "scores+AV"},
    {"values", "scores+AV"},
    {"flash", "scores+AV"},
    {"c_proj", "out"},
    {"o_proj", "out"},
    {"out_proj", "out"},
    {"dense", "out"},
    {"attn", "attention"},
    {"self_attn", "attention"},
    {"attention", "attention"},
    {"self_attention", "attention"},
    {"mixer", "attention"},
    {"lm_head.linear", "head"},
    {"lm_head.ln", "norms"},
    {"lm_head", "head"},
    {"embed_out", "head"},
    {"word_embeddings_layernorm", "norms"},
    {"wte", "embedding"},
    {"embed_tokens", "embedding"},
    {"embed_in", "embedding"},
    {"word_embeddings", "embedding"},
    {"project_in", "embedding"},
    {"project_out", "embedding"},
    {"embed_positions", "positions"},
    {"embed", "embedding"},
    {"wpe", "positions"},
    {"ln_1", "norms"},
    {"ln_2", "norms"},
    {"ln_f", "norms"},
    {"ln_attn", "norms"},
    {"ln_mlp", "norms"},
    {"input_layernorm", "norms"},
    {"post_attention_layernorm", "norms"},
    {"pre_feedforward_layernorm", "norms"},
    {"post_feedforward_layernorm", "norms"},
    {"self_attn_layer_norm", "norms"},
    {"final_layer_norm", "norms"},
    {"final_layernorm", "norms"},
    {"norm", "norms"},
    {"loss", "loss"},
    {"final", "linear"},
};

const char *tl_explain_group(const char *path) {
    for (size_t i = 0; i < sizeof groups_of / sizeof groups_of[0]; i++)
        if (has_component(path, groups_of[i].component))
            return groups_of[i].group;
    if (strncmp(path, "layers.", 7) == 0)
        return "linear"; /* the Cruncher's */
    return has_component(path, "h") || has_component(path, "layers") ? "residual" : "other";
}

tl_status tl_explain_grouped(const tl_explain_sum *sum, tl_explain_sum *groups, tl_error *error) {
    tl_ctx *ctx = sum->run->ctx;
    memset(groups, 0, sizeof *groups);
    groups->run = sum->run;
    groups->formula = sum->formula;
    groups->value = sum->value;
    for (int i = 0; i < sum->count; i++) {
        const tl_explain_term *from = &sum->term[i];
        int at = 0;
        while (at < groups->count && strcmp(groups->term[at].group, from->group) != 0)
            at++;
        if (at == groups->count) {
            if (!tl_host_grow(ctx, &groups->term, sizeof *groups->term, groups->count + 1, &groups->capacity)) {
                tl_explain_free(groups);
                return tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
            }
            groups->term[groups->count++] =
                (tl_explain_term){.group = from->group, .what = "", .formula = from->formula, .value = from->value};
            continue;
        }
        groups->term[at].formula = tl_poly_add(ctx->space, groups->term[at].formula, from->formula);
        groups->term[at].value += from->value; /* below the total, which fits */
    }
    tl_status status = TL_OK;
    const tl_error *formulas = tl_space_error(ctx->space);
    if (formulas->status != TL_OK)
        status = tl_fail(error, formulas->status, "%s", formulas->message);
    for (int i = 0; i < groups->count && status == TL_OK; i++)
        status =
            tl_explain_check(sum->run, groups->term[i].group, groups->term[i].formula, groups->term[i].value, error);
    if (status != TL_OK)
        tl_explain_free(groups);
    return status;
}

/* ---- parameters ---- */

/* "h.3.attn.c_attn.weight" is "h.*.attn.c_attn.weight" of layer 3. */
void tl_explain_pattern(const char *name, char *out, size_t size) {
    size_t n = 0;
    for (const char *at = name; *at && n + 2 < size;) {
        size_t length = strcspn(at, ".");
        if (length > 0 && strspn(at, "0123456789") == length)
            out[n++] = '*';
        else
            for (size_t i = 0; i < length && n + 2 < size; i++)
                out[n++] = at[i];
        at += length;
        if (*at == '.') {
            out[n++] = '.';
            at++;
        }
    }
    out[n] = '\0';
}

tl_status tl_explain_params(const tl_plan_run *run, tl_explain_sum *sum, tl_error *error) {
    tl_gather g;
    tl_gather_begin(&g, run, sum);
    const tl_parameter *list;
    int count = tl_net_parameters(tl_trainer_net(run->trainer), &list);
    for (int i = 0; i < count; i++) {
        char pattern[96];
        const tl_tensor *t = list[i].tensor;
        tl_explain_pattern(list[i].name, pattern, sizeof pattern);
        const tl_shape *shape = list[i].full ? list[i].full : &t->shape;
        int64_t elements = 0;
        tl_shape_count(shape, &elements);
        tl_gather_add(&g, pattern, "", t->storage->region, (tl_u128)elements, tl_shape_formula(run->ctx, shape, 1));
    }
    tl_status status = tl_gather_end(&g, "the parameters", false, error);
    if (status != TL_OK)
        return status;
    tl_parameter_count counted;
    tl_net_count(tl_trainer_net(run->trainer), &counted);
    return tl_explain_check(run, "the parameters", sum->formula, (tl_u128)counted.unique, error);
}

/* ---- counts of ops ---- */

typedef struct op_gather {
    tl_gather g;
    tl_phase phase;
    tl_explain_count which;
    bool again; /* what is computed a second time, else what is not */
} op_gather;

static const tl_amount *amount_of(const tl_op_entry *e, tl_explain_count which) {
    switch (which) {
    case TL_EXPLAIN_MATMUL:
        return &e->matmul;
    case TL_EXPLAIN_MATMUL_CAUSAL:
        return &e->matmul_causal;
    case TL_EXPLAIN_ARITHMETIC:
        return &e->arithmetic;
    default:
        return &e->special;
    }
}

/* What of an op's count is computed a second time, or what is not. */
static tl_amount share_of(tl_space *space, const tl_op_entry *e, tl_explain_count which, bool again) {
    const tl_amount none = {0}, *all = amount_of(e, which);
    const tl_amount *part = which == TL_EXPLAIN_MATMUL          ? &e->matmul_again
                            : which == TL_EXPLAIN_MATMUL_CAUSAL ? &e->matmul_causal_again
                                                                : &none;
    if (e->recomputed || part->count == 0)
        return e->recomputed == again ? *all : none;
    if (again)
        return *part;
    return (tl_amount){all->count - part->count, tl_poly_sub(space, all->formula, part->formula)};
}

static bool gather_op(void *user, const tl_op_entry *e) {
    op_gather *o = user;
    bool forward = e->phase == TL_PHASE_FORWARD || e->phase == TL_PHASE_LOSS;
    const tl_amount share = share_of(o->g.ctx->space, e, o->which, o->again), *amount = &share;
    if (o->phase == TL_PHASE_ALL || o->phase == e->phase || (o->phase == TL_PHASE_FORWARD && forward)) {
        if (amount->count > 0)
            tl_gather_add(&o->g, e->pattern, e->op, e->region, amount->count, amount->formula);
    }
    return !o->g.failed;
}

static tl_u128 counted(const tl_counts *c, tl_explain_count which) {
    switch (which) {
    case TL_EXPLAIN_MATMUL:
        return c->matmul;
    case TL_EXPLAIN_MATMUL_CAUSAL:
        return c->matmul_causal;
    case TL_EXPLAIN_ARITHMETIC:
        return c->arithmetic;
    default:
        return c->special;
    }
}

static tl_u128 counted_once(const tl_plan_run *run, tl_phase phase, tl_explain_count which) {
    tl_counts all, again;
    tl_ledger_counts(run->ctx, phase, &all);
    tl_ledger_recomputed(run->ctx, phase, &again);
    return counted(&all, which) - counted(&again, which);
}

tl_status tl_explain_flops(const tl_plan_run *run, tl_phase phase, tl_explain_count which, tl_explain_sum *sum,
                           tl_error *error) {
    op_gather o = {.phase = phase, .which = which};
    tl_gather_begin(&o.g, run, sum);
    tl_ledger_each_op(run->ctx, gather_op, &o);
    tl_status status = tl_gather_end(&o.g, "the count of operations", true, error);
    if (status != TL_OK)
        return status;
    tl_u128 want = counted_once(run, phase, which);
    if (phase == TL_PHASE_FORWARD)
        want += counted_once(run, TL_PHASE_LOSS, which);
    return tl_explain_check(run, "the count of operations", sum->formula, want, error);
}

tl_status tl_explain_recomputed(const tl_plan_run *run, tl_explain_count which, tl_explain_sum *sum, tl_error *error) {
    op_gather o = {.phase = TL_PHASE_ALL, .which = which, .again = true};
    tl_counts again;
    tl_gather_begin(&o.g, run, sum);
    tl_ledger_each_op(run->ctx, gather_op, &o);
    tl_status status = tl_gather_end(&o.g, "what is computed again", true, error);
    if (status != TL_OK)
        return status;
    tl_ledger_recomputed(run->ctx, TL_PHASE_ALL, &again);
    return tl_explain_check(run, "what is computed again", sum->formula, counted(&again, which), error);
}

/* ---- beside 6·P·tokens ---- */

tl_status tl_explain_six_of(const tl_explain_sum *flops, const tl_explain_sum *params, tl_explain_six *six,
                            tl_error *error) {
    const tl_plan_run *run = flops->run;
    tl_space *space = run->ctx->space;
    const tl_train_options *train = &run->train;
    memset(six, 0, sizeof *six);
    bool words = tl_net_model(tl_trainer_net(run->trainer))->family != TL_FAMILY_CRUNCHER;
    const tl_poly *tokens = tl_poly_constant(space, TL_NAPKIN_FLOPS);
    tl_u128 n = TL_NAPKIN_FLOPS * (tl_u128)train->micro_batch;
    tokens = tl_poly_mul(space, tokens, tl_poly_symbol(space, "B", train->micro_batch, NULL));
    if (words)
        tokens = tl_poly_mul(space, tokens, tl_poly_symbol(space, "T", train->seq, NULL));
    if (train->accumulation > 1)
        tokens = tl_poly_mul(space, tokens, tl_poly_symbol(space, "A", train->accumulation, NULL));
    bool fits = tl_mul_u128(n, words ? (tl_u128)train->seq : 1, &n) &&
                tl_mul_u128(n, (tl_u128)train->accumulation, &n) && tl_mul_u128(n, params->value, &six->six);
    if (!fits)
        return tl_fail(error, TL_ERR_OVERFLOW, "6·P·tokens is beyond 128 bits");
    six->six_formula = tl_poly_mul(space, tokens, params->formula);
    six->attention_formula = tl_poly_constant(space, 0);
    for (int i = 0; i < flops->count; i++) {
        const tl_explain_term *t = &flops->term[i];
        if (strcmp(t->group, "scores+AV") != 0)
            continue;
        six->attention += t->value;
        six->attention_formula = tl_poly_add(space, six->attention_formula, t->formula);
    }
    six->idle_formula =
        tl_poly_sub(space, tl_poly_add(space, six->six_formula, six->attention_formula), flops->formula);
    /* A parameter used in two products would make this negative; the check below refuses it. */
    six->idle = six->six + six->attention - flops->value;
    if (tl_space_error(space)->status != TL_OK)
        return tl_fail(error, tl_space_error(space)->status, "%s", tl_space_error(space)->message);
    tl_status status = tl_explain_check(run, "6·P·tokens", six->six_formula, six->six, error);
    if (status == TL_OK)
        status = tl_explain_check(run, "attention", six->attention_formula, six->attention, error);
    return status == TL_OK ? tl_explain_check(run, "parameters in no product", six->idle_formula, six->idle, error)
                           : status;
}
