/* The engines: one table. A choice that a row does not name is tally's own. */
#include "tally/engine.h"

#include "hw/assumptions.h"

#include <stdio.h>
#include <string.h>

static const tl_engine_choice of_tally[] = {{NULL, NULL, NULL, TL_OF_ALL}};

#define TORCH_GRADS                                                                                                    \
    { "grads-apart", "on", "torch autograd/functions/accumulate_grad.h: variable_grad += new_grad", TL_OF_ALL }

/* What PyTorch 1.13 keeps of it, tensor by tensor, was recorded: docs/torch-saves.md. */
static const tl_engine_choice of_torch_eager[] = {
    {"norm", "composed", "transformers LlamaRMSNorm: to f32, pow, mean, rsqrt, product, back, gain", TL_OF_ALL},
    {"gelu", "composed", "transformers activations.NewGELUActivation, by pow and tanh", TL_OF_NEW_GELU},
    {"rotary", "tables", "transformers apply_rotary_pos_emb: q·cos + rotate_half(q)·sin", TL_OF_ALL},
    {"repeat-kv", "on", "transformers repeat_kv: expand and reshape, a copy", TL_OF_ALL},
    {"attention-copies", "on", "torch.matmul of 4-d tensors: bmm of reshaped operands, which are kept", TL_OF_ALL},
    {"softmax-fp32", "on", "transformers eager_attention_forward: softmax(dtype=float32).to(dtype); GPT-2's has none",
     TL_OF_OTHERS},
    {"mask-tensor", "on", "transformers create_causal_mask: one additive [B,1,T,T] a forward", TL_OF_ALL},
    {"loss", "full-fp32", "transformers ForCausalLMLoss: logits.float(), cross_entropy keeps log-softmax", TL_OF_ALL},
    {"update", "foreach", "torch.optim.AdamW: foreach on CUDA where fused is not asked for", TL_OF_ALL},
    TORCH_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

static const tl_engine_choice of_torch_compile[] = {
    {"norm", "fused", "torch._inductor: pow, mean, rsqrt and product in one kernel; kept are x and rsqrt", TL_OF_ALL},
    {"gelu", "fused", "torch._inductor: pointwise; computed again from the product's output", TL_OF_ALL},
    {"glu", "fused", "torch._inductor: pointwise; kept are the outputs of both products and the next one's input",
     TL_OF_ALL},
    {"rotary", "tables", "the model's own cosines and sines, inputs of the graph", TL_OF_ALL},
    {"attention-copies", "on", "bmm stays an extern kernel: its operands are made contiguous", TL_OF_ALL},
    {"loss", "full", "torch._inductor: log-softmax and cast computed again from the logits and a row's statistics",
     TL_OF_ALL},
    {"update", "foreach", "torch.optim.AdamW outside the graph: foreach on CUDA", TL_OF_ALL},
    TORCH_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

static const tl_engine_choice of_hf_trainer[] = {
    {"attention", "flash", "transformers sdpa_attention_forward, the default; fused on a GPU", TL_OF_ALL},
    {"norm", "composed", "transformers LlamaRMSNorm", TL_OF_ALL},
    {"gelu", "composed", "transformers activations.NewGELUActivation", TL_OF_NEW_GELU},
    {"rotary", "tables", "transformers apply_rotary_pos_emb", TL_OF_ALL},
    {"repeat-kv", "on", "transformers repeat_kv", TL_OF_ALL},
    {"loss", "full-fp32", "transformers ForCausalLMLoss: logits.float()", TL_OF_ALL},
    {"update", "foreach", "TrainingArguments.optim = adamw_torch: torch.optim.AdamW, foreach on CUDA", TL_OF_ALL},
    TORCH_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

static const tl_engine_choice of_torchtune[] = {
    {"attention", "flash", "torchtune modules.MultiHeadAttention: scaled_dot_product_attention", TL_OF_ALL},
    {"norm", "composed", "torchtune modules.RMSNorm: x.float(), pow, mean, rsqrt, type_as, scale", TL_OF_ALL},
    {"rotary", "tables", "torchtune modules.RotaryPositionalEmbeddings: a cache of cosines and sines", TL_OF_ALL},
    {"repeat-kv", "on", "torchtune modules.MultiHeadAttention: k and v expanded and flattened", TL_OF_ALL},
    {"loss", "chunks-fp32",
     "torchtune LinearCrossEntropyLoss: logits.float() of 8 chunks, all kept (recipes: compile False; compiled "
     "chunks-kept)",
     TL_OF_ALL},
    {"update", "fused", "torchtune recipes/configs: optimizer fused: True", TL_OF_ALL},
    TORCH_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

static const tl_engine_choice of_litgpt[] = {
    {"attention", "flash", "litgpt model.CausalSelfAttention: scaled_dot_product_attention", TL_OF_ALL},
    {"norm", "composed", "litgpt model.RMSNorm: x.float(), mean(x·x), rsqrt, to(dtype), weight", TL_OF_ALL},
    {"rotary", "tables", "litgpt model.apply_rope: cos and sin, buffers of the model", TL_OF_ALL},
    {"repeat-kv", "on", "litgpt model.CausalSelfAttention: k and v expanded and reshaped", TL_OF_ALL},
    {"loss", "log-softmax",
     "litgpt utils.chunked_cross_entropy: F.cross_entropy of logits in their own format, all chunks kept", TL_OF_ALL},
    {"update", "foreach", "litgpt finetune: torch.optim.AdamW as it is, foreach on CUDA", TL_OF_ALL},
    TORCH_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

static const tl_engine_choice of_torchtitan[] = {
    {"attention", "flash", "torchtitan models.attention: scaled_dot_product_attention, flash or cuDNN", TL_OF_ALL},
    {"norm", "fused", "torchtitan models: nn.RMSNorm in a compiled block", TL_OF_ALL},
    {"rotary", "tables", "torchtitan models.llama3 apply_rotary_emb: freqs_cis, a buffer", TL_OF_ALL},
    {"repeat-kv", "on", "torchtitan models.llama3 repeat_kv: expand and reshape", TL_OF_ALL},
    {"loss", "full-fp32", "torchtitan components.loss.cross_entropy_loss: pred.float()", TL_OF_ALL},
    {"update", "fused", "torchtitan job config: optimizer.implementation = fused", TL_OF_ALL},
    TORCH_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

/* Megatron Core. grads f32: accumulate_allreduce_grads_in_fp32, which --bf16 sets. */
#define MEGATRON_GRADS                                                                                                 \
    { "grads", "f32", "megatron DistributedDataParallel: main_grad, fp32 with --bf16", TL_OF_ALL }
#define MEGATRON_LOSS                                                                                                  \
    {                                                                                                                  \
        "loss", "full-fp32", "megatron tensor_parallel.cross_entropy: logits.float(), keeps the softmax in fp32",      \
            TL_OF_ALL                                                                                                  \
    }

static const tl_engine_choice of_megatron_local[] = {
    {"glu", "fused", "megatron fusions.fused_bias_swiglu: bias_swiglu_fusion, keeps its input", TL_OF_ALL},
    {"repeat-kv", "on", "megatron DotProductAttention: repeat_interleave of key and value", TL_OF_ALL},
    MEGATRON_LOSS,
    MEGATRON_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

static const tl_engine_choice of_megatron_te[] = {
    {"attention", "flash", "transformer_engine DotProductAttention: flash-attn or cuDNN, keys read in place",
     TL_OF_ALL},
    {"glu", "fused", "megatron fusions.fused_bias_swiglu: bias_swiglu_fusion, keeps its input", TL_OF_ALL},
    MEGATRON_LOSS,
    MEGATRON_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

/* DeepSpeed brings no model; the usual one is transformers'. */
static const tl_engine_choice of_deepspeed[] = {
    {"attention", "flash", "transformers sdpa_attention_forward", TL_OF_ALL},
    {"norm", "composed", "transformers LlamaRMSNorm", TL_OF_ALL},
    {"gelu", "composed", "transformers activations.NewGELUActivation", TL_OF_NEW_GELU},
    {"rotary", "tables", "transformers apply_rotary_pos_emb", TL_OF_ALL},
    {"repeat-kv", "on", "transformers repeat_kv", TL_OF_ALL},
    {"loss", "full-fp32", "transformers ForCausalLMLoss: logits.float()", TL_OF_ALL},
    {"update", "fused", "deepspeed.ops.adam.FusedAdam", TL_OF_ALL},
    TORCH_GRADS,
    {NULL, NULL, NULL, TL_OF_ALL}};

#define CACHING(slack)                                                                                                 \
    .allocator = TL_ALLOCATOR_CACHING, .context_bytes = TL_TORCH_CONTEXT_BYTES, .workspaces = TL_TORCH_WORKSPACES,     \
    .workspace_bytes = TL_TORCH_WORKSPACE_BYTES, .slack_permille = (slack)

static const char by_autocast[] = "4+4+8: fp32 parameters, cast op by op (torch.autocast)";
static const char pure[] = "2+2+2+2: parameters, gradients and states in bf16";
static const char main_grads[] = "2+4+12: bf16 parameters, fp32 gradients, master copy and states";

static const tl_engine engines[] = {
    {.name = "tally",
     .what = "what tally train does here",
     .choices = of_tally,
     .precision = TL_PRECISION_BF16_MIXED,
     .formats = "2+2+12: bf16 parameters and gradients, fp32 master copy and states",
     .allocator = TL_ALLOCATOR_ARENA,
     .context_bytes = TL_DEVICE_CONTEXT_BYTES},
    {.name = "torch-eager",
     .what = "Hugging Face's model code with eager attention, op by op",
     .choices = of_torch_eager,
     .precision = TL_PRECISION_BF16_MIXED,
     .autocast = true,
     .formats = by_autocast,
     CACHING(TL_TORCH_SLACK_PERMILLE)},
    {.name = "torch-compile",
     .what = "the same under torch.compile: only products' inputs and norms' rsqrt are kept",
     .choices = of_torch_compile,
     .precision = TL_PRECISION_BF16_MIXED,
     .autocast = true,
     .formats = by_autocast,
     CACHING(TL_TORCH_SLACK_PERMILLE)},
    {.name = "hf-trainer",
     .what = "transformers.Trainer with bf16=True: scaled_dot_product_attention",
     .choices = of_hf_trainer,
     .precision = TL_PRECISION_BF16_MIXED,
     .autocast = true,
     .formats = by_autocast,
     CACHING(TL_TORCH_SLACK_PERMILLE)},
    {.name = "torchtune",
     .what = "torchtune's full finetune, dtype bf16",
     .choices = of_torchtune,
     .precision = TL_PRECISION_BF16,
     .formats = pure,
     CACHING(TL_TORCH_SLACK_PERMILLE)},
    {.name = "litgpt",
     .what = "LitGPT's full finetune, bf16-true",
     .choices = of_litgpt,
     .precision = TL_PRECISION_BF16,
     .formats = pure,
     CACHING(TL_TORCH_SLACK_PERMILLE)},
    {.name = "torchtitan",
     .what = "torchtitan, fp32 parameters and bf16 products, compiled blocks",
     .choices = of_torchtitan,
     .precision = TL_PRECISION_BF16_MIXED,
     .autocast = true,
     .formats = by_autocast,
     CACHING(TL_TORCH_SLACK_SEGMENTS_PERMILLE)}, /* run_train.sh: expandable_segments:True */
    {.name = "megatron-local",
     .what = "Megatron Core, --transformer-impl local: scores as tensors",
     .choices = of_megatron_local,
     .precision = TL_PRECISION_BF16_MIXED,
     .formats = main_grads,
     CACHING(TL_TORCH_SLACK_PERMILLE)},
    {.name = "megatron-te",
     .what = "Megatron Core with Transformer Engine: fused attention",
     .choices = of_megatron_te,
     .precision = TL_PRECISION_BF16_MIXED,
     .formats = main_grads,
     CACHING(TL_TORCH_SLACK_PERMILLE)},
    {.name = "deepspeed",
     .what = "DeepSpeed's BF16_Optimizer over Hugging Face's model code",
     .choices = of_deepspeed,
     .precision = TL_PRECISION_BF16_MIXED,
     .formats = "2+2+12: bf16 parameters and gradients, fp32 master copy and states",
     CACHING(TL_TORCH_SLACK_PERMILLE)},
};
enum { ENGINES = sizeof engines / sizeof engines[0] };

int tl_engine_count(void) { return ENGINES; }

const tl_engine *tl_engine_at(int index) { return index >= 0 && index < ENGINES ? &engines[index] : NULL; }

tl_status tl_engine_find(const char *name, const tl_engine **engine, tl_error *error) {
    char known[200];
    size_t at = 0;
    for (int i = 0; i < ENGINES; i++)
        if (strcmp(engines[i].name, name) == 0) {
            *engine = &engines[i];
            return TL_OK;
        }
    for (int i = 0; i < ENGINES && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s",
                               i == 0             ? ""
                               : i == ENGINES - 1 ? " or "
                                                  : ", ",
                               engines[i].name);
    return tl_fail(error, TL_ERR_NOT_FOUND, "there is no engine \"%.80s\"; %s would work", name, known);
}

static bool holds(const tl_engine_choice *c, const tl_model *model) {
    tl_family family = model ? model->family : TL_FAMILY_LLAMA;
    switch (c->of) {
    case TL_OF_ALL:
        return true;
    case TL_OF_NEW_GELU:
        return family == TL_FAMILY_GPT2 || family == TL_FAMILY_GPTJ || family == TL_FAMILY_PHI ||
               family == TL_FAMILY_PHI_MSFT;
    case TL_OF_OTHERS:
        return family != TL_FAMILY_GPT2;
    }
    return false;
}

void tl_engine_choose(const tl_engine *engine, const tl_model *model, tl_choices *choices) {
    *choices = (tl_choices){0};
    for (const tl_engine_choice *c = engine->choices; c->name; c++)
        if (holds(c, model) && tl_choice_set(choices, c->name, c->value, NULL) != TL_OK)
            continue; /* cannot be: tests set every row */
}

char *tl_engine_text(const tl_engine *engine, const tl_model *model, char *buffer, size_t size) {
    size_t at = 0;
    if (size)
        buffer[0] = '\0';
    for (const tl_engine_choice *c = engine->choices; c->name && at < size; c++)
        if (holds(c, model))
            at += (size_t)snprintf(buffer + at, size - at, "%s%s=%s", at ? "," : "", c->name, c->value);
    return buffer;
}

int64_t tl_engine_needs(const tl_engine *engine, int64_t arena, int64_t peak) {
    if (engine->allocator == TL_ALLOCATOR_ARENA)
        return arena;
    int64_t slack = peak / 1000 * engine->slack_permille + peak % 1000 * engine->slack_permille / 1000, sum;
    return tl_add_i64(peak, slack, &sum) ? sum : INT64_MAX;
}
