/* Every family's account opens up into formulas: its products are the closed form that the literature counts, its formulas give
 * the numbers at these sizes, and every module has a group. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "family_models.h"
#include "tally/explain.h"

enum { B = 2, T = 12 };

/* Forward FLOPs of a token's linear layers in layer i, ÷ 2: Megatron's num_floating_point_operations and PaLM's appendix B, term by
 * term (PaLM: Chowdhery et al. 2022); latent attention as DeepSeek-V2's table of parameters; per-layer embeddings and layers without
 * keys by the linear modules of transformers' modeling_gemma4.py. */
static int64_t linear(const tl_model *m, int64_t i) {
    int64_t D = m->width, H = m->heads, G = m->kv_heads, K = m->head_size, sum = 0;
    bool wide = m->layer[i] & TL_LAYER_GLOBAL_HEADS, routed = m->layer[i] & TL_LAYER_EXPERTS;
    bool shared = m->layer[i] & TL_LAYER_SHARED_KV;
    if (wide)
        G = m->global_kv_heads, K = m->global_head_size;
    if (m->kv_rank > 0) {
        sum += m->q_rank ? D * m->q_rank + m->q_rank * H * K : D * H * K;
        sum += D * (m->kv_rank + m->qk_rope) + m->kv_rank * H * (m->qk_nope + m->value_size);
        sum += H * m->value_size * D;
    } else
        sum += 2 * D * H * K + (shared ? 0 : wide && m->keys_are_values ? 1 : 2) * D * G * K;
    sum += 2 * D * m->layer_input_size;
    if (!routed || m->experts_beside)
        sum += (m->gated ? 3 : 2) * D * m->ff * (m->layer[i] & TL_LAYER_WIDE_MLP ? 2 : 1);
    if (routed)
        sum += D * m->experts + m->experts_per_token * 3 * D * m->expert_ff + 3 * D * m->shared_ff + m->shared_gate * D;
    return sum;
}

/* Scores and weighted sum of a token in layer i, ÷ 2, without causality: T·H·(K + L). */
static int64_t core(const tl_model *m, int64_t i) {
    int64_t K = m->layer[i] & TL_LAYER_GLOBAL_HEADS ? m->global_head_size : m->head_size;
    return T * m->heads * (K + (m->kv_rank > 0 ? m->value_size : K));
}

static int64_t forward_flops(const tl_model *m) {
    int64_t width = m->embedding_size ? m->embedding_size : m->width, sum = m->vocab * width;
    if (m->embedding_size)
        sum += 2 * m->width * width;
    sum += m->width * m->layers * m->layer_input_size;
    for (int64_t i = 0; i < m->layers; i++)
        sum += linear(m, i) + core(m, i);
    return 2 * B * T * sum;
}

static tl_u128 products(const tl_plan_run *run, tl_phase phase, const char *name) {
    tl_error error = {0};
    tl_explain_sum sum, groups;
    if (tl_explain_flops(run, phase, TL_EXPLAIN_MATMUL, &sum, &error) != TL_OK)
        fail_msg("%s: %s", name, error.message);
    for (int i = 0; i < sum.count; i++)
        if (strcmp(sum.term[i].group, "other") == 0 || strcmp(sum.term[i].group, "residual") == 0)
            fail_msg("%s: the products of %s belong to no group", name, sum.term[i].pattern);
    if (tl_explain_grouped(&sum, &groups, &error) != TL_OK)
        fail_msg("%s: %s", name, error.message);
    tl_u128 value = sum.value;
    tl_explain_free(&groups);
    tl_explain_free(&sum);
    return value;
}

static void check_parameters(const tl_plan_run *run, const char *name) {
    tl_error error = {0};
    tl_explain_sum sum;
    if (tl_explain_params(run, &sum, &error) != TL_OK)
        fail_msg("%s: %s", name, error.message);
    for (int i = 0; i < sum.count; i++)
        if (strcmp(sum.term[i].group, "other") == 0)
            fail_msg("%s: %s belongs to no group", name, sum.term[i].pattern);
    tl_explain_free(&sum);
}

static void products_are_the_closed_form(void **state) {
    (void)state;
    for (int f = 0; f < family_model_count(); f++) {
        tl_model m = family_model(f);
        tl_error error = {0};
        tl_plan_run run;
        tl_plan_options o = {.model = m, .micro_batch = B, .seq = T, .precision = TL_PRECISION_FP32};
        o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
        o.devices = (tl_devices){.count = 1};
        if (tl_plan_run_make(&o, true, &run, &error) != TL_OK)
            fail_msg("%s: %s", m.name, error.message);
        tl_u128 forward = products(&run, TL_PHASE_FORWARD, m.name), all = products(&run, TL_PHASE_ALL, m.name);
        if (forward != (tl_u128)forward_flops(&m))
            fail_msg("%s: %lld FLOPs forward; the closed form has %lld", m.name, (long long)forward,
                     (long long)forward_flops(&m));
        assert_true(all == 3 * forward); /* backward is twice forward */
        check_parameters(&run, m.name);
        tl_plan_run_free(&run);
    }
}

/* The run at other sizes is another run; the formulas of this one, with its numbers put in, must give the same. */
static void formulas_hold_at_other_sizes(void **state) {
    (void)state;
    for (int f = 0; f < family_model_count(); f++) {
        tl_error error = {0};
        tl_plan_run run, other;
        tl_explain_sum here, there;
        tl_u128 value = 0;
        tl_plan_options o = {.model = family_model(f), .micro_batch = B, .seq = T, .precision = TL_PRECISION_FP32};
        o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
        o.devices = (tl_devices){.count = 1};
        if (o.model.layer_input_vocab)
            o.model.layer_input_vocab = 64;
        tl_plan_options longer = o;
        longer.seq = T + 4;
        longer.micro_batch = 3;
        longer.model.vocab = 53;
        if (tl_plan_run_make(&o, true, &run, &error) != TL_OK ||
            tl_plan_run_make(&longer, true, &other, &error) != TL_OK ||
            tl_explain_flops(&run, TL_PHASE_ALL, TL_EXPLAIN_MATMUL, &here, &error) != TL_OK ||
            tl_explain_flops(&other, TL_PHASE_ALL, TL_EXPLAIN_MATMUL, &there, &error) != TL_OK)
            fail_msg("%s: %s", o.model.name, error.message);
        const tl_binding changed[] = {{"T", T + 4}, {"B", 3}, {"V", 53}};
        if (tl_poly_value(tl_ctx_space(run.ctx), here.formula, changed, 3, &value, &error) != TL_OK)
            fail_msg("%s: %s", o.model.name, error.message);
        assert_true(value == there.value);
        tl_explain_free(&here);
        tl_explain_free(&there);
        tl_plan_run_free(&run);
        tl_plan_run_free(&other);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_the_closed_form),
        cmocka_unit_test(formulas_hold_at_other_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
