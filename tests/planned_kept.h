/* planned_kept.h: of tests/test_planned_measured.c: what frameworks keep, and where. */
#ifndef TESTS_PLANNED_KEPT_H
#define TESTS_PLANNED_KEPT_H

/* What frameworks keep and put elsewhere: LitGPT's adapters and bitsandbytes' products, learned prompts, logits in a variable,
 * checkpoints in the host's memory, gradients of their own. */
#define KEPT_CHUNKS .choices = "loss=chunks-fp32:3,hold-logits=on"
static const config kept_so[] = {
    CONFIG("llama, merged adapters", small_llama, ADAMW, 2, 16, 1,
           .lora = {.rank = 4, .dropout = 0.05, .merged_qv = true}, .fused_qkv = true, KEPT_CHUNKS),
    CONFIG("llama, merged adapters over nf4, bf16", small_llama, ADAMW, 2, 16, 3,
           .lora = {.rank = 4,
                    .merged_qv = true,
                    .base = TL_LORA_NF4,
                    .base_head = true,
                    .base_by_f16 = true,
                    .base_keeps_input = true},
           .fused_qkv = true, .bf16 = true, KEPT_CHUNKS),
    CONFIG("llama, quantised head, full", small_llama, ADAMW, 2, 16, 1, FULL,
           .lora = {.rank = 4, .base = TL_LORA_NF4_TWICE, .base_head = true, .base_keeps_input = true}, .bf16 = true),
    CONFIG("llama, a learned prompt", small_llama, ADAMW, 1, 16, 1, .lora = {.prefix = 5, .prefix_from = 1},
           .fused_qkv = true),
    CONFIG("llama, a learned prompt, scales, nf4, bf16, 2 sequences", small_llama, ADAMW, 2, 16, 1,
           .lora = {.prefix = 5,
                    .prefix_from = 1,
                    .scales = true,
                    .base = TL_LORA_NF4,
                    .base_head = true,
                    .base_by_f16 = true,
                    .base_keeps_input = true},
           .fused_qkv = true, .bf16 = true, KEPT_CHUNKS),
    CONFIG("llama, q, k and v in one", small_llama, ADAMW, 2, 16, 1, .fused_qkv = true),
    CONFIG("llama, chunks kept", small_llama, ADAMW, 2, 16, 3, .choices = "loss=chunks-kept:4,grads-apart=on"),
    CONFIG("gpt2, chunks kept, gradients of their own", small_gpt2, ADAMW, 2, 16, 1,
           .choices = "loss=chunks-kept:4,grads-apart=on"),
    CONFIG("gpt2, full-fp32, logits held, bf16", small_gpt2, ADAMW, 2, 16, 3,
           .choices = "loss=full-fp32,hold-logits=on", .bf16 = true),
    CONFIG("llama, offloaded", small_llama, ADAMW, 2, 16, 1, FULL, .choices = "offload=on"),
    CONFIG("gpt2, offloaded every 2, dropout", small_gpt2, ADAMW, 2, 16, 3, EVERY(2), .choices = "offload=on",
           .layers = 5, .dropout = 0.1),
};

#endif
