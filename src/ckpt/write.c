/* ckpt/write.c: a checkpoint that is either there whole or not there. */
#include "ckpt/format.h"

#include <stdlib.h>
#include <string.h>

#include "data/replace.h"
#include "tensor/ctx.h"

/* The checksums of all values into their entries, then that of the header behind the last entry. */
static void seal(unsigned char *header, const tl_net *net, const tl_optimizer *optimizer, uint64_t header_bytes) {
    tl_ckpt_list list;
    tl_ckpt_entry e;
    unsigned char *at = header + TL_CKPT_FIXED;
    tl_ckpt_list_begin(&list, net, optimizer, header_bytes);
    while (tl_ckpt_list_next(&list, &e)) {
        tl_ckpt_put(at + 88, 8, tl_ckpt_hash(TL_CKPT_HASH, tl_tensor_data((tl_tensor *)(uintptr_t)e.tensor), e.bytes));
        at += TL_CKPT_ENTRY + strlen(e.name);
    }
    tl_ckpt_put(at, 8, tl_ckpt_hash(TL_CKPT_HASH, header, (size_t)(at - header)));
}

static tl_status write_file(tl_replace *file, const unsigned char *header, const tl_ckpt_head *head, const tl_net *net,
                            const tl_optimizer *optimizer, tl_error *error) {
    static const char filling[TL_CKPT_ALIGN];
    tl_ckpt_list list;
    tl_ckpt_entry e;
    uint64_t at = head->header_bytes;
    tl_status status = tl_replace_write(file, header, head->header_bytes, error);
    tl_ckpt_list_begin(&list, net, optimizer, head->header_bytes);
    while (status == TL_OK && tl_ckpt_list_next(&list, &e)) {
        status = tl_replace_write(file, filling, e.offset - at, error);
        if (status == TL_OK)
            status = tl_replace_write(file, tl_tensor_data((tl_tensor *)(uintptr_t)e.tensor), e.bytes, error);
        at = e.offset + e.bytes;
    }
    return status;
}

tl_status tl_ckpt_save(const char *path, tl_ctx *ctx, const tl_net *net, const tl_optimizer *optimizer,
                       const tl_ckpt_state *state, tl_error *error) {
    tl_replace file;
    if (tl_ctx_is_meta(ctx))
        return tl_fail(error, TL_ERR_STATE, "a model on meta has no values to save");
    if (ctx->error.status != TL_OK)
        return tl_fail(error, ctx->error.status, "%s", ctx->error.message);
    tl_ckpt_state all = *state;
    all.step = tl_optimizer_steps(optimizer);
    all.seed_init = ctx->seed_init;
    all.seed_data = ctx->seed_data;
    all.seed_dropout = ctx->seed_dropout;
    all.dropout_position = ctx->random_position;
    tl_ckpt_head head;
    unsigned char *header = tl_ckpt_header_make(net, optimizer, &all, &head, error);
    if (!header)
        return error ? error->status : TL_ERR_MEMORY;
    tl_phase before = tl_phase_get(ctx);
    tl_phase_set(ctx, TL_PHASE_SAVE);
    seal(header, net, optimizer, head.header_bytes);
    tl_status status = tl_replace_begin(&file, path, error);
    if (status == TL_OK)
        status = tl_replace_end(&file, write_file(&file, header, &head, net, optimizer, error), error);
    tl_phase_set(ctx, before);
    free(header);
    return status;
}
