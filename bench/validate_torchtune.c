/* bench/validate_torchtune.c: the two memory tables of torchtune's README.
 *
 * "Memory and training speed" (September 2024): batch 2, packed to 2048, torch.compile. Peak memory is torch.cuda's, GiB, of the
 * recipes in recipes/configs/llama3_1/8B_*_single_device.yaml:
 *   all            dtype bf16, CEWithChunkedOutputLoss in 8 chunks
 *   full           bitsandbytes.optim.PagedAdamW8bit, whose states are in CUDA's managed memory: torch's counters do not see them;
 *                  optimizer_in_bwd True
 *   LoRA           rank 8, alpha 16, q_proj and v_proj, no dropout, AdamW
 *   QLoRA          the same over NF4, quantised twice (torchao), not the head
 *   checkpointing  enable_activation_checkpointing True, which the rows of a 24 GB card need; the rows of the 48 GB card are those
 *                  without it: they differ from the former by what 32 layers of 4096 tokens keep, 18.5 GiB and 14.1 GiB
 *
 * "Optimization flags" (2025): Llama 3.2 3B, batch 2, 4096 tokens, A100; each row is the row before it and one technique more, from
 * the page's own list. Peak active, GiB. AdamW in bf16 (fused=True in the recipes); LoRA and QLoRA at the end, on top of the
 * techniques that are about activations.
 *
 * torch.compile: norms and gates are one kernel each, of which products' inputs are kept (the engine torch-compile). */
#include "validate.h"

#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

static bool choose(const tl_model *model, bool compiled, tl_choices *choices) {
    const tl_engine *engine;
    if (tl_engine_find("torchtune", &engine, NULL) != TL_OK)
        return false;
    tl_engine_choose(engine, model, choices);
    choices->loss = TL_LOSS_CHUNKS_KEPT;
    choices->loss_chunks = 8;
    if (compiled) {
        choices->norm = TL_NORM_FUSED;
        choices->glu = TL_GLU_FUSED;
    }
    return true;
}

static tl_lora_options adapters(bool quantised, int64_t rank, const char *targets) {
    return (tl_lora_options){.rank = rank,
                             .alpha = 2.0 * (double)rank,
                             .targets = targets,
                             .base = quantised ? TL_LORA_NF4_TWICE : TL_LORA_PLAIN};
}

/* Of states in managed memory torch's counters see nothing; they are there from the first step to the last. */
static void leave_out_states(answer *a, const tl_plan *plan) {
    a->planned -= (double)plan->peak.by_category[TL_OPTIM];
    a->needs = taken(a->planned);
}

/* ---- memory and training speed ---- */

typedef struct card {
    const char *name, *device;
    bool checkpoints;
} card;
static const card cards[] = {{"1x 4090", "RTX-4090", true}, {"1x A6000", "A6000", false}};

static bool plan_speed(const table *t, answer *a) {
    const char *method = table_get(t, "Finetuning Method"), *on = table_get(t, "Runnable On");
    const card *c = NULL;
    tl_plan_options o;
    tl_plan plan;
    snprintf(a->what, sizeof a->what, "torchtune %.30s %.20s on %.12s", table_get(t, "Model"), method, on);
    for (size_t i = 0; i < sizeof cards / sizeof cards[0]; i++)
        if (strcmp(cards[i].name, on) == 0)
            c = &cards[i];
    bool full = strcmp(method, "Full finetune") == 0, qlora = strcmp(method, "QLoRA") == 0;
    if (strncmp(on, "1x", 2) != 0)
        snprintf(a->why, sizeof a->why, "several devices");
    else if (!c)
        snprintf(a->why, sizeof a->why, "whether this card's row checkpoints is not known");
    else if (strcmp(table_get(t, "Model"), "Llama 3.1 8B") != 0)
        snprintf(a->why, sizeof a->why, "the recipe of this model is not in the table");
    else if (!full && !qlora && strcmp(method, "LoRA") != 0)
        snprintf(a->why, sizeof a->why, "the method is not known");
    if (a->why[0] || !plan_start(&o, "llama-3.1-8b", c->device, a))
        return true;
    if (!table_bytes(t, "Peak Memory per GPU", 0, &a->measured) || !choose(&o.model, !qlora, &o.choices))
        return false;
    o.micro_batch = 2;
    o.seq = 2048;
    if (c->checkpoints)
        o.recompute = (tl_recompute){.kind = TL_RECOMPUTE_FULL};
    if (full) {
        o.optimizer.kind = TL_OPTIM_ADAMW8BIT;
        o.choices.update_in_backward = true;
    } else
        o.lora = adapters(qlora, 8, "q_proj,v_proj");
    if (!plan_peak(&o, a, &plan))
        return false;
    if (full)
        leave_out_states(a, &plan);
    return true;
}

/* ---- optimization flags ---- */

enum technique {
    BASELINE,
    PACKED,
    COMPILE,
    CHUNKED,
    CHECKPOINTING,
    IN_BACKWARD,
    OFFLOADING,
    EIGHT_BITS,
    LORA,
    QLORA,
    TECHNIQUES
};
static const char *const technique_names[TECHNIQUES] = {"Baseline",
                                                        "Packed Dataset",
                                                        "Compile",
                                                        "Chunked Cross Entropy",
                                                        "Activation Checkpointing",
                                                        "Fuse optimizer step into backward",
                                                        "Activation Offloading",
                                                        "8-bit AdamW",
                                                        "LoRA",
                                                        "QLoRA"};

/* "+ Compile", "[+ Compile](...)" */
static int technique_of(const char *text) {
    text += strspn(text, "[+ ");
    for (int i = 0; i < TECHNIQUES; i++) {
        size_t n = strlen(technique_names[i]);
        if (strncmp(text, technique_names[i], n) == 0 && (text[n] == '\0' || text[n] == ']'))
            return i;
    }
    return -1;
}

static bool plan_flags(const table *t, answer *a) {
    const char *text = table_get(t, "Technique");
    int k = technique_of(text);
    bool adapted = k == LORA || k == QLORA;
    tl_plan_options o;
    tl_plan plan;
    snprintf(a->what, sizeof a->what, "torchtune Llama 3.2 3B: %.60s", text);
    if (k < 0)
        snprintf(a->why, sizeof a->why, "the technique is not known");
    if (k == BASELINE)
        snprintf(a->why, sizeof a->why, "samples of unknown length, not packed");
    if (a->why[0] || !plan_start(&o, "llama-3.2-3b", "A100-80G", a))
        return true;
    if (!table_bytes(t, "Peak Memory Active (GiB)", GIB, &a->measured) ||
        !choose(&o.model, k >= COMPILE && k != QLORA, &o.choices))
        return false;
    o.micro_batch = 2;
    o.seq = 4096;
    if (k < CHUNKED)
        o.choices.loss = TL_LOSS_FULL_FP32;
    if (k >= CHECKPOINTING)
        o.recompute = (tl_recompute){.kind = TL_RECOMPUTE_FULL};
    o.choices.update_in_backward = k >= IN_BACKWARD && !adapted;
    o.choices.offload = k >= OFFLOADING;
    if (k == EIGHT_BITS) {
        o.optimizer.kind = TL_OPTIM_ADAMW8BIT;
        o.choices.update = TL_UPDATE_TENSOR;
    }
    if (adapted)
        o.lora = adapters(k == QLORA, 8, "q_proj,v_proj");
    if (!plan_peak(&o, a, &plan))
        return false;
    return true;
}

bool validate_torchtune(report *r, const char *path) {
    static const char *const wants[] = {"section",
                                        "Model",
                                        "Finetuning Method",
                                        "Runnable On",
                                        "Technique",
                                        "Peak Memory per GPU",
                                        "Peak Memory Active (GiB)"};
    static table t;
    bool more = true;
    if (!table_open(&t, path))
        return false;
    bool ok = table_wants(&t, wants, (int)(sizeof wants / sizeof wants[0]));
    while (ok && (ok = table_next(&t, &more)) && more) {
        answer a = {0};
        bool flags = table_get(&t, "Technique")[0] != '\0';
        if (!flags && !table_get(&t, "Finetuning Method")[0])
            continue; /* what runs where, without a figure */
        ok = (flags ? plan_flags : plan_speed)(&t, &a) && report_add(r, &a);
    }
    table_close(&t);
    return ok;
}
