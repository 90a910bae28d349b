/* bench/validate_misc.c: single figures of measured_memory_misc.csv, those of one device whose run is described.
 *
 *   torchtune, Llama 2 7B   docs/source/tutorials/lora_finetune.rst and qlora_finetune.rst (spring 2024), recipes/configs/llama2/
 *                           7B_lora_single_device.yaml: batch 2, Alpaca cut at max_seq_len 512, bf16, AdamW, checkpointing, q_proj and
 *                           v_proj, no compile, logits in f32. "all": also the output projections of attention and the MLP's
 *                           layers (lora_finetune.rst lists attention's four and applies them to the MLP). Reserved: the allocator's
 *                           slack is added.
 *   LOMO, LLaMA 7B          arXiv 2306.09782, Table 1: bf16 parameters and gradients, f32 master copy and two states, Hugging Face's
 *                           code; GiB, though written GB. Activations are what is kept for backward at most. */
#include "validate.h"

#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

/* "13.98/15.57": at most n numbers; false: not of that form. */
static bool numbers(const table *t, double *value, int n) {
    const char *text = table_get(t, "value"), *at = text;
    for (int i = 0; i < n; i++) {
        char *end = NULL;
        value[i] = strtod(at, &end);
        if (end == at || !(value[i] > 0) || (i + 1 < n ? *end != '/' : *end != '\0'))
            return table_fail(t, "value is \"%s\"; %d numbers with / between would work", text, n);
        at = end + 1;
    }
    return true;
}

static bool add(report *r, const char *model, const char *what, double planned, double measured, const char *why) {
    answer a = {.planned = planned, .measured = measured};
    snprintf(a.what, sizeof a.what, "%.20s: %.120s", model, what);
    snprintf(a.why, sizeof a.why, "%s", why ? why : "");
    return report_add(r, &a);
}

/* ---- torchtune's tutorials ---- */

static bool tutorial(tl_plan_options *o, int64_t rank, bool all, answer *a, tl_plan *plan) {
    const tl_engine *engine;
    if (!plan_start(o, "llama-2-7b", "A100-80G", a) || tl_engine_find("torchtune", &engine, NULL) != TL_OK)
        return false;
    tl_engine_choose(engine, &o->model, &o->choices);
    o->choices.loss = TL_LOSS_FULL_FP32;
    o->micro_batch = 2;
    o->seq = 512;
    o->recompute = (tl_recompute){.kind = TL_RECOMPUTE_FULL};
    o->lora =
        (tl_lora_options){.rank = rank, .alpha = 2.0 * (double)rank, .targets = all ? "all-linear" : "q_proj,v_proj"};
    return plan_peak(o, a, plan) && !a->why[0];
}

static double reserved(double peak) {
    const tl_engine *engine;
    return tl_engine_find("torchtune", &engine, NULL) == TL_OK ? (double)tl_engine_needs(engine, 0, (int64_t)peak)
                                                               : peak;
}

static bool add_tutorial(report *r, const table *t, const char *what) {
    tl_plan_options o;
    tl_plan plan;
    double value[4];
    answer a = {0};
    const char *model = table_get(t, "model");
    if (strstr(what, "QLoRA"))
        return add(
            r, model, what, 0, 0,
            "torchao's conversion to NF4 makes the peak, in blocks that PyTorch's allocator keeps: docs/validation.md");
    if (strstr(what, "init / training")) {
        return numbers(t, value, 2) && tutorial(&o, 8, false, &a, &plan) &&
               add(r, model, "torchtune LoRA after init, reserved", reserved((double)plan.init.bytes), value[0] * 1e9,
                   NULL) &&
               add(r, model, "torchtune LoRA training, reserved", reserved(a.planned), value[1] * 1e9, NULL);
    }
    if (!strstr(what, "rank 8 Q,V / all / rank 64 Q,V / all"))
        return add(r, model, what, 0, 0, "a run that is not described");
    if (!numbers(t, value, 4))
        return false;
    for (int i = 0; i < 4; i++) {
        char text[80];
        int64_t rank = i < 2 ? 8 : 64;
        snprintf(text, sizeof text, "torchtune LoRA rank %lld on %s, reserved", (long long)rank,
                 i % 2 ? "all" : "Q and V");
        if (!tutorial(&o, rank, i % 2, &a, &plan) || !add(r, model, text, reserved(a.planned), value[i] * 1e9, NULL))
            return false;
    }
    return true;
}

/* ---- LOMO's table ---- */

static bool add_lomo(report *r, const table *t, const char *what) {
    static const char *const parts[] = {"parameters", "gradients", "optimizer states and master copy", "activations",
                                        "all"};
    const tl_engine *engine;
    tl_plan_options o;
    tl_plan plan;
    double value[5];
    answer a = {0};
    if (!numbers(t, value, 5) || !plan_start(&o, "llama-7b", "A100-80G", &a) ||
        tl_engine_find("torch-eager", &engine, NULL) != TL_OK)
        return false;
    tl_engine_choose(engine, &o.model, &o.choices);
    o.choices.update = TL_UPDATE_FUSED;
    o.choices.clamp_scores =
        true; /* transformers 4.28 to 4.30, modeling_llama.py: torch.max(attn_weights, finfo.min) */
    o.precision = TL_PRECISION_BF16_MIXED;
    o.micro_batch = 8;
    o.seq = 512;
    if (!strstr(what, "no act ckpt"))
        o.recompute = (tl_recompute){.kind = TL_RECOMPUTE_FULL};
    if (!plan_peak(&o, &a, &plan))
        return false;
    double planned[5] = {(double)plan.high[TL_PARAM], (double)plan.high[TL_GRAD],
                         (double)(plan.high[TL_OPTIM] + plan.high[TL_MASTER]), (double)plan.high[TL_SAVED], 0};
    for (int i = 0; i < 4; i++)
        planned[4] += planned[i];
    for (int i = 0; i < 5; i++) {
        answer part = {.planned = planned[i], .measured = value[i] * GIB, .side = i < 4};
        snprintf(part.what, sizeof part.what, "LOMO LLaMA-7B 8 x 512 %s: %s",
                 strstr(what, "no act") ? "no ckpt" : "ckpt", parts[i]);
        if (!report_add(r, &part))
            return false;
    }
    return true;
}

/* ---- rows ---- */

bool validate_misc(report *r, const char *path) {
    static const char *const wants[] = {"model", "setting", "quantity", "value", "unit"};
    static table t;
    bool more = true;
    if (!table_open(&t, path))
        return false;
    bool ok = table_wants(&t, wants, (int)(sizeof wants / sizeof wants[0]));
    while (ok && (ok = table_next(&t, &more)) && more) {
        const char *model = table_get(&t, "model"), *what = table_get(&t, "setting");
        const char *quantity = table_get(&t, "quantity");
        if (strcmp(quantity, "overhead") == 0 || strcmp(quantity, "coef") == 0)
            continue; /* no peak of a run */
        if (strcmp(model, "Llama2-7B") == 0 && strncmp(what, "torchtune", 9) == 0)
            ok = add_tutorial(r, &t, what);
        else if (strcmp(model, "LLaMA-7B") == 0 && strncmp(quantity, "params/grads", 12) == 0)
            ok = add_lomo(r, &t, what);
        else
            ok = add(r, model, what, 0, 0, "several devices, or a run that is not described");
    }
    table_close(&t);
    return ok;
}
