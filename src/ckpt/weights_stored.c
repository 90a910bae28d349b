/* ckpt/weights_stored.c: what published files take in the formats that their config.json names, from the model built on meta. */
#include "ckpt/weights.h"

#include <stdio.h>
#include <string.h>

#include "nn/names.h"
#include "tensor/ctx.h"

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Matrices of linear layers but the router's, and experts (DeepSeek-V3's modules; its config's modules_to_not_convert is empty). */
static bool is_fp8(const tl_model *m, const tl_parameter *p) {
    char router[96];
    const char *name = tl_names_of(m)->router;
    snprintf(router, sizeof router, ".%s.weight", name ? name : "");
    if (name && ends_with(p->name, router))
        return false;
    return p->linear || (tl_tensor_ndim(p->tensor) == 3 && strstr(p->name, ".experts."));
}

/* gpt_oss's modules_to_not_convert: attention, routers, the table and the head. */
static bool is_mxfp4(const tl_parameter *p) { return tl_tensor_ndim(p->tensor) == 3 && strstr(p->name, ".experts."); }

static int64_t fp8_bytes(const tl_tensor *t) {
    const tl_shape *s = tl_tensor_shape(t);
    int64_t rows = s->dim[s->ndim - 2].size, columns = s->dim[s->ndim - 1].size, block = TL_WEIGHTS_FP8_BLOCK;
    int64_t scales = ((rows + block - 1) / block) * ((columns + block - 1) / block);
    return tl_tensor_count(t) + tl_tensor_count(t) / (rows * columns) * scales * 4;
}

/* 16 bytes of codes and one of a scale for each 32 along the input, which is the axis before the last. */
static int64_t mx_bytes(const tl_tensor *t) { return tl_tensor_count(t) / TL_WEIGHTS_MX_BLOCK * 17; }

static void add(const tl_model *m, const tl_parameter *p, tl_weights_stored *stored) {
    const tl_tensor *t = p->tensor;
    int64_t count = tl_tensor_count(t);
    bool packed = m->stored == TL_STORED_FP8 ? is_fp8(m, p) : m->stored == TL_STORED_MXFP4 && is_mxfp4(p);
    int64_t bytes = packed ? m->stored == TL_STORED_FP8 ? fp8_bytes(t) : mx_bytes(t)
                    : ends_with(p->name, ".e_score_correction_bias") ? 4 * count
                                                                     : 2 * count;
    stored->bytes += bytes;
    stored->packed += packed ? count : 0;
    stored->packed_bytes += packed ? bytes : 0;
}

tl_status tl_weights_stored_bytes(const tl_model *model, tl_weights_stored *stored, tl_error *error) {
    const tl_parameter *list;
    tl_ctx *ctx = tl_ctx_new(NULL, error);
    memset(stored, 0, sizeof *stored);
    if (!ctx)
        return error ? error->status : TL_ERR_MEMORY;
    tl_net *net = tl_net_new(ctx, model, TL_BF16);
    int count = net ? tl_net_parameters(net, &list) : 0;
    for (int i = 0; i < count; i++)
        add(model, &list[i], stored);
    tl_status status = net ? TL_OK : tl_fail(error, tl_ctx_status(ctx), "%s", tl_ctx_error(ctx)->message);
    tl_net_free(net);
    tl_ctx_free(ctx);
    return status;
}
