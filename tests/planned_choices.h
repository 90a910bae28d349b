/* tests/planned_choices.h: configurations of tests/test_planned_measured.c, whose macros it uses: every choice of tally/choices.h. */
#ifndef TALLY_TESTS_PLANNED_CHOICES_H
#define TALLY_TESTS_PLANNED_CHOICES_H

#define WITH(text) .choices = (text)
#define HUGGING_FACE                                                                                                   \
    "norm=composed,gelu=composed,rotary=tables,repeat-kv=on,attention-copies=on,softmax-fp32=on,mask-tensor=on,"       \
    "dropout-mask=4,loss=full-fp32"

/* Every choice on both families, and together; with recompute, micro-batches, 16 bits. */
static const config with_choices[] = {
    CONFIG("gpt2, flash", small_gpt2, ADAMW, 2, 16, 1, WITH("attention=flash"), .dropout = 0.1),
    CONFIG("gpt2, flash, selective", small_gpt2, ADAMW, 2, 16, 1, SELECTIVE, WITH("attention=flash"), .dropout = 0.1),
    CONFIG("gpt2, math", small_gpt2, ADAMW, 2, 16, 1, WITH("attention=math"), .dropout = 0.1),
    CONFIG("gpt2, math, copies, full", small_gpt2, ADAMW, 2, 16, 1, FULL, WITH("attention=math,attention-copies=on")),
    CONFIG("gpt2, composed gelu", small_gpt2, ADAMW, 2, 16, 1, WITH("gelu=composed")),
    CONFIG("gpt2, composed gelu, full, bf16", small_gpt2, ADAMW, 2, 16, 1, FULL, WITH("gelu=composed"), .bf16 = true),
    CONFIG("gpt2, copies", small_gpt2, ADAMW, 2, 16, 1, WITH("attention-copies=on")),
    CONFIG("gpt2, mask", small_gpt2, ADAMW, 2, 16, 3, WITH("mask-tensor=on"), .dropout = 0.1),
    CONFIG("gpt2, mask, full", small_gpt2, ADAMW, 2, 16, 3, FULL, WITH("mask-tensor=on")),
    CONFIG("gpt2, softmax in f32", small_gpt2, ADAMW, 2, 16, 1, WITH("softmax-fp32=on"), .bf16 = true),
    CONFIG("gpt2, wide dropout masks", small_gpt2, ADAMW, 2, 16, 1, WITH("dropout-mask=4"), .dropout = 0.1),
    CONFIG("gpt2, dropout masks of 2, full", small_gpt2, ADAMW, 2, 16, 3, FULL, WITH("dropout-mask=2"), .dropout = 0.1,
           .bf16 = true),
    CONFIG("gpt2, loss in f32", small_gpt2, ADAMW, 2, 16, 1, WITH("loss=full-fp32"), .bf16 = true),
    CONFIG("gpt2, chunked loss", small_gpt2, ADAMW, 2, 16, 3, WITH("loss=chunked:4")),
    CONFIG("gpt2, chunked loss, odd, full", small_gpt2, ADAMW, 3, 7, 1, FULL, WITH("loss=chunked:20")),
    CONFIG("gpt2, fused loss", small_gpt2, ADAMW, 2, 16, 3, WITH("loss=fused:4")),
    CONFIG("gpt2, fused loss, bf16-mixed, untied", small_gpt2, ADAMW, 2, 16, 1, WITH("loss=fused:3"), .mixed = true,
           .flip_tied = true),
    CONFIG("gpt2, f32 gradients", small_gpt2, ADAMW, 2, 16, 3, WITH("grads=f32"), .mixed = true, .clip = 1),
    CONFIG("gpt2, f32 gradients of f32", small_gpt2, ADAMW, 2, 16, 1, FULL, WITH("grads=f32")),
    CONFIG("gpt2, adamw by tensor", small_gpt2, ADAMW, 2, 16, 1, WITH("update=tensor")),
    CONFIG("gpt2, adamw foreach", small_gpt2, ADAMW, 2, 16, 3, WITH("update=foreach"), .clip = 1),
    CONFIG("gpt2, cs336 foreach", small_gpt2, ADAMW_CS336, 2, 16, 1, WITH("update=foreach")),
    CONFIG("gpt2, adam by tensor, bf16-mixed", small_gpt2, ADAM, 2, 16, 1, WITH("update=tensor"), .mixed = true),
    CONFIG("gpt2, rmsprop foreach", small_gpt2, RMSPROP_ALL, 2, 16, 1, WITH("update=foreach")),
    CONFIG("gpt2, adagrad by tensor", small_gpt2, ADAGRAD, 2, 16, 1, WITH("update=tensor")),
    CONFIG("gpt2, momentum foreach", small_gpt2, MOMENTUM, 2, 16, 1, WITH("update=foreach"), .bf16 = true),
    CONFIG("gpt2, adamw8bit foreach", small_gpt2, ADAMW8BIT, 2, 16, 1, WITH("update=foreach"), .width = 96),
    CONFIG("gpt2, update in backward", small_gpt2, ADAMW, 2, 16, 1, WITH("update-in-backward=on")),
    CONFIG("gpt2, update in backward, full", small_gpt2, ADAMW, 2, 16, 1, FULL, WITH("update-in-backward=on"),
           .dropout = 0.1),
    CONFIG("gpt2, all of Hugging Face", small_gpt2, ADAMW, 2, 16, 3, WITH(HUGGING_FACE), .dropout = 0.1),
    CONFIG("llama, flash", small_llama, ADAMW, 2, 16, 1, WITH("attention=flash")),
    CONFIG("llama, flash, full, 3 micro-batches", small_llama, ADAMW, 2, 16, 3, FULL, WITH("attention=flash")),
    CONFIG("llama, math", small_llama, ADAMW, 2, 16, 1, WITH("attention=math,repeat-kv=on")),
    CONFIG("llama, composed norm", small_llama, ADAMW, 2, 16, 1, WITH("norm=composed")),
    CONFIG("llama, composed norm, bf16, full", small_llama, ADAMW, 2, 16, 1, FULL, WITH("norm=composed"), .bf16 = true),
    CONFIG("llama, fused gate", small_llama, ADAMW, 2, 16, 1, WITH("glu=fused")),
    CONFIG("llama, rotary tables", small_llama, ADAMW, 2, 16, 3, WITH("rotary=tables")),
    CONFIG("llama, rotary tables, interleaved, full", small_llama, ADAMW, 2, 16, 1, FULL, WITH("rotary=tables"),
           .interleaved = true, .kv_heads = 4),
    CONFIG("llama, repeated keys", small_llama, ADAMW, 2, 16, 1, WITH("repeat-kv=on")),
    CONFIG("llama, copies, mask, selective", small_llama, ADAMW, 2, 16, 1, SELECTIVE,
           WITH("attention-copies=on,mask-tensor=on")),
    CONFIG("llama, chunked loss", small_llama, ADAMW, 2, 16, 1, WITH("loss=chunked")),
    CONFIG("llama, fused loss, full", small_llama, ADAMW, 2, 16, 1, FULL, WITH("loss=fused")),
    CONFIG("llama, chunked loss, bf16-mixed, f32 gradients", small_llama, ADAMW, 2, 16, 3,
           WITH("loss=chunked,grads=f32"), .mixed = true),
    CONFIG("llama, update in backward", small_llama, ADAMW, 2, 16, 1, WITH("update-in-backward=on,update=tensor")),
    CONFIG("llama, update in backward, selective, bf16-mixed, chunked", small_llama, ADAMW, 2, 16, 1, SELECTIVE,
           WITH("update-in-backward=on,loss=chunked:5"), .mixed = true),
    CONFIG("llama, all of Hugging Face, full", small_llama, ADAMW, 2, 16, 1, FULL, WITH(HUGGING_FACE)),
    CONFIG("llama, the leanest", small_llama, ADAMW, 2, 16, 1,
           WITH("attention=flash,glu=fused,loss=fused,update-in-backward=on"), .best = true, .threads = 2),
    CONFIG("llama, tables and composed under autocast", small_llama, ADAMW, 2, 16, 1,
           WITH("norm=composed,rotary=tables,loss=fused,glu=fused"), .precision = TL_PRECISION_BF16_MIXED,
           .autocast = true),
    CONFIG("gpt2, autocast, math", small_gpt2, ADAMW, 2, 16, 1, WITH("attention=math,gelu=composed,loss=chunked"),
           .precision = TL_PRECISION_BF16_MIXED, .autocast = true),
};

#endif
