/* kernel/body/body_table.c: the table of one instruction set. */
#include "kernel/body/body.h"

#define TL_NAME_(isa) #isa
#define TL_NAME(isa) TL_NAME_(isa)

#define KERNEL(name) .name = TL_K(name)

const tl_kernels TL_K(kernels_table) = {
    .name = TL_NAME(TL_ISA),
#if defined(__AVX2__) && defined(TL_HAVE_DNNL)
    .engine_open = tl_engine_open_dnnl,
    .product = TL_K(product_dnnl),
#else
    .engine_open = tl_engine_open_plain,
    .product = TL_K(product_reference),
#endif
    .engine_close = tl_engine_close,
    KERNEL(add),
    KERNEL(sub),
    KERNEL(mul),
    KERNEL(div),
    KERNEL(neg),
    KERNEL(exp),
    KERNEL(log),
    KERNEL(sqrt),
    KERNEL(rsqrt),
    KERNEL(tanh),
    KERNEL(relu),
    KERNEL(gelu_erf),
    KERNEL(gelu_tanh),
    KERNEL(silu),
    KERNEL(scale),
    KERNEL(relu_backward),
    KERNEL(gelu_erf_backward),
    KERNEL(gelu_tanh_backward),
    KERNEL(silu_backward),
    KERNEL(tanh_backward),
    KERNEL(copy),
    KERNEL(copy_saturating),
    KERNEL(fill),
    KERNEL(sum),
    KERNEL(mean),
    KERNEL(max),
    KERNEL(square_sum),
    KERNEL(argmax),
    KERNEL(softmax),
    KERNEL(softmax_backward),
    KERNEL(layer_norm),
    KERNEL(layer_norm_backward),
    KERNEL(rms_norm),
    KERNEL(rms_norm_backward),
    KERNEL(rotary),
    KERNEL(embedding),
    KERNEL(embedding_backward),
    KERNEL(cross_entropy),
    KERNEL(cross_entropy_backward),
    KERNEL(mse),
    KERNEL(mse_backward),
    KERNEL(dropout),
    KERNEL(dropout_backward),
    KERNEL(normal),
    KERNEL(truncated_normal),
    KERNEL(uniform),
    KERNEL(sgd),
    KERNEL(adagrad),
    KERNEL(adamw),
};
