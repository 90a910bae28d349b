/* bench/validate_litgpt.c: LitGPT's tutorials/resource-tables.md of 2023-10-20 (commit 8641822): A100-SXM4-40GB, PyTorch 2.1,
 * bitsandbytes 0.41.1, --precision bf16-true. "Max GPU RAM" is torch.cuda.max_memory_allocated() / 1e9.
 *
 * What the rows do not say, and where it stands:
 *   longest sample      the page's own list; it is forced into the first micro-batch (finetune/lora.py get_batch), and the others
 *                       of it are padded to it
 *   adapters            finetune/lora.py: rank 8, alpha 16, dropout 0.05, query and value; checked against the row's trainable
 *                       parameters
 *   q, k and v in one   lit_gpt/model.py CausalSelfAttention.attn; LoRAQKVLinear in lit_gpt/lora.py, index_copy keeps its source
 *   norm                lit_gpt/rmsnorm.py of that autumn: in f32, the gain too, then back; torch.nn.LayerNorm
 *   chunks of logits    128 tokens each (lm_head_chunk_size in finetune/lora.py, chunked_cross_entropy)
 *   logits              a module set up by Lightning Fabric gives its output as f32 (HalfPrecision.convert_output); the loop's
 *                       variable `logits` holds them while backward runs; cross_entropy keeps log-softmax in f32
 *   bnb.nf4, nf4-dq     Lightning's BitsandbytesPrecision: every nn.Linear, the head too, by way of torch.half; MatMul4Bit keeps
 *                       its input (bitsandbytes/autograd/_functions.py)
 *   generating          generate/base.py: "Hello, my name is" and 50 new tokens, the cache for all of them
 * Embedding and head are not tied in LitGPT, whatever the model's own description says. */
#include "validate.h"

#include <string.h>

enum { PROMPT = 6, GENERATED = 50, CHUNK = 128 };

typedef struct model_fact {
    const char *size, *name, *catalogue;
    int64_t longest; /* tokens of Alpaca's longest sample; 0: no row is finetuned */
} model_fact;

static const model_fact models[] = {
    {"1.3 B", "phi-1.5", "phi-1.5", 1044},
    {"3 B", "StableLM Alpha", "pythia-6.9b", 1034}, /* half of its layers: below */
    {"7 B", "Llama 2", "llama-2-7b", 1304},
    {"13 B", "Llama 2", "llama-2-13b", 1304},
    {"34 B", "CodeLlama", "codellama-34b", 0},
    {"40 B", "Falcon", "falcon-40b", 1079},
    {"70 B", "Llama 2", "llama-2-70b", 1304},
};

static const model_fact *fact_of(const table *t) {
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (strcmp(table_get(t, "Size"), models[i].size) == 0 && strcmp(table_get(t, "Model"), models[i].name) == 0)
            return &models[i];
    return NULL;
}

/* stabilityai/stablelm-base-alpha-3b config.json: gpt_neox, 16 layers of 4096, 32 heads, rotary_pct 0.25, context 4096:
 * pythia-6.9b's block. Vocabulary 50688, as the page's adapter_v2 row counts it: 2,125,248 trainable parameters. */
static void describe(tl_model *m, const model_fact *fact) {
    if (strcmp(fact->name, "StableLM Alpha") == 0) {
        snprintf(m->name, sizeof m->name, "stablelm-base-alpha-3b");
        m->layers = 16;
        m->vocab = 50688;
        m->context = 4096;
    }
    m->tied = false;
    m->fused_qkv = true;
}

static bool base_of(const char *quantization, tl_lora_options *lora) {
    lora->base = strcmp(quantization, "bnb.nf4") == 0      ? TL_LORA_NF4
                 : strcmp(quantization, "bnb.nf4-dq") == 0 ? TL_LORA_NF4_TWICE
                                                           : TL_LORA_PLAIN;
    lora->base_head = lora->base_by_f16 = lora->base_keeps_input = lora->base != TL_LORA_PLAIN;
    return lora->base != TL_LORA_PLAIN || strcmp(quantization, "None") == 0;
}

static bool choose(const tl_model *model, tl_choices *choices) {
    const tl_engine *engine;
    tl_error error = {0};
    if (tl_engine_find("litgpt", &engine, &error) != TL_OK)
        return false;
    tl_engine_choose(engine, model, choices);
    choices->norm = TL_NORM_WIDE;
    choices->loss = TL_LOSS_CHUNKS_FP32;
    choices->hold_logits = true; /* finetune/lora.py: `logits` is a variable of the loop */
    return true;
}

/* ---- finetuning ---- */

/* lit_gpt/adapter.py: adapter_prompt_length and adapter_start_layer; a prompt and a gate a head in each layer from there on. */
enum { PROMPT_ROWS = 10, PROMPT_FROM = 2 };
static int64_t prompts_of(const tl_model *m) { return (m->layers - PROMPT_FROM) * (PROMPT_ROWS * m->width + m->heads); }

static bool finetune(const table *t, const model_fact *fact, answer *a) {
    tl_plan_options o;
    tl_plan plan;
    int64_t trainable;
    if (!table_whole(t, "Trainable parameters", &trainable))
        return false;
    int64_t batch;
    if (!table_whole(t, "Microbatch size", &batch))
        return false;
    if (!plan_start(&o, fact->catalogue, "A100-40G", a))
        return true;
    describe(&o.model, fact);
    o.micro_batch = batch;
    o.seq = fact->longest;
    o.lora = (tl_lora_options){.rank = 8, .alpha = 16, .dropout = 0.05, .merged_qv = true};
    if (strstr(table_get(t, "section"), "Adapter")) { /* the page's second table of the section is adapter_v2's */
        int64_t norms = trainable - prompts_of(&o.model);
        o.lora = (tl_lora_options){.prefix = PROMPT_ROWS, .prefix_from = PROMPT_FROM, .scales = norms > 0};
    }
    if (!base_of(table_get(t, "Quantization"), &o.lora)) {
        snprintf(a->why, sizeof a->why, "quantization %.40s is not known", table_get(t, "Quantization"));
        return true;
    }
    if (!choose(&o.model, &o.choices))
        return false;
    o.choices.loss_chunks = (o.seq + CHUNK - 1) / CHUNK;
    if (!plan_peak(&o, a, &plan))
        return false;
    if (!a->why[0] && plan.trainable != trainable)
        snprintf(a->why, sizeof a->why, "the recipe's adapters have %lld parameters, the row's %lld",
                 (long long)plan.trainable, (long long)trainable);
    return true;
}

/* ---- generating ---- */

static bool generate(const table *t, const model_fact *fact, answer *a) {
    tl_plan_options start;
    tl_infer_options o = {.dtype = TL_BF16, .cache_dtype = TL_BF16, .prompt_tokens = PROMPT, .new_tokens = GENERATED};
    tl_infer_plan plan;
    tl_error error = {0};
    o.capacity = PROMPT + GENERATED;
    if (!plan_start(&start, fact->catalogue, "A100-40G", a))
        return true;
    describe(&start.model, fact);
    o.model = start.model;
    if (!base_of(table_get(t, "Quantization"), &o.base)) {
        snprintf(a->why, sizeof a->why, "quantization %.40s is not known", table_get(t, "Quantization"));
        return true;
    }
    if (!choose(&o.model, &o.choices))
        return false;
    if (tl_infer_plan_make(&o, &plan, &error) != TL_OK) {
        snprintf(a->why, sizeof a->why, "%.180s", error.message);
        return error.status != TL_ERR_MEMORY;
    }
    a->planned = (double)plan.peak_bytes;
    a->needs = taken(a->planned);
    return true;
}

/* ---- rows ---- */

static bool plan_row(const table *t, answer *a) {
    const char *section = table_get(t, "section"), *ram = table_get(t, "Max GPU RAM");
    const model_fact *fact = fact_of(t);
    bool infer = strstr(section, "Inference") != NULL;
    if (strstr(section, "Multiple")) {
        snprintf(a->why, sizeof a->why, "several devices");
        return true;
    }
    if (!fact) {
        snprintf(a->why, sizeof a->why, "the model is not known");
        return true;
    }
    a->oom = strcmp(ram, "OOM") == 0;
    if (!a->oom && (strncmp(ram, "CUDA error", 10) == 0 || strcmp(ram, "N/A") == 0)) {
        snprintf(a->why, sizeof a->why, "nothing was measured (%.60s)", ram);
        return true;
    }
    if (!a->oom && !table_bytes(t, "Max GPU RAM", 0, &a->measured))
        return false;
    return infer ? generate(t, fact, a) : finetune(t, fact, a);
}

bool validate_litgpt(report *r, const char *path) {
    static const char *const wants[] = {
        "section", "Size", "Model", "Quantization", "Microbatch size", "Trainable parameters", "Max GPU RAM"};
    static table t;
    bool more = true;
    if (!table_open(&t, path))
        return false;
    bool ok = table_wants(&t, wants, (int)(sizeof wants / sizeof wants[0]));
    while (ok && (ok = table_next(&t, &more)) && more) {
        answer a = {0};
        const char *section = table_get(&t, "section"), *slash = strrchr(section, '/');
        snprintf(a.what, sizeof a.what, "litgpt %.40s: %.8s %.20s %.12s batch %.4s", slash ? slash + 2 : section,
                 table_get(&t, "Size"), table_get(&t, "Model"), table_get(&t, "Quantization"),
                 table_get(&t, "Microbatch size")[0] ? table_get(&t, "Microbatch size") : "1");
        ok = plan_row(&t, &a) && report_add(r, &a);
    }
    table_close(&t);
    return ok;
}
