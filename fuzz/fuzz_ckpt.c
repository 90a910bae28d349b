/* Any bytes at all as a checkpoint: refused with a message, or loaded; never a crash, a hang or a large allocation. The
 * first byte chooses whether the input stands alone or is laid over a checkpoint that is whole, so that the deeper checks
 * are reached. */
#include "tally/account.h"
#include "tally/ckpt.h"
#include "tally/cpu.h"
#include "tally/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned char whole[1 << 17];
static size_t whole_bytes;

typedef struct world {
    tl_ctx *ctx;
    tl_trainer *trainer;
} world;

static tl_ckpt_contents contents_of(const world *w) {
    return (tl_ckpt_contents){
        .ctx = w->ctx, .net = tl_trainer_net(w->trainer), .optimizer = tl_trainer_optimizer(w->trainer)};
}

static world begin(void) {
    tl_error error = {TL_OK, ""};
    tl_model m = {.name = "fuzz", .family = TL_FAMILY_GPT2, .layers = 1, .width = 4, .heads = 2, .kv_heads = 2};
    m.head_size = 2, m.ff = 8, m.vocab = 13, m.context = 12, m.tied = m.learned_positions = true;
    m.norm_epsilon = 1e-5, m.init_std = 0.02;
    tl_train_options o = {.micro_batch = 1, .seq = 4, .accumulation = 1, .ranks = 1, .dtype = TL_F32};
    o.optimizer = tl_optimizer_defaults(TL_OPTIM_ADAMW);
    world w = {.ctx = tl_ctx_new(&(tl_ctx_options){.kernels = tl_kernels_portable()}, &error)};
    if (!w.ctx || !(w.trainer = tl_trainer_new(w.ctx, &m, &o)))
        abort();
    return w;
}

static void end(world *w) {
    tl_trainer_free(w->trainer);
    tl_ctx_free(w->ctx);
}

static void make_whole(void) {
    char path[64];
    tl_error error = {TL_OK, ""};
    tl_ckpt_state state = {.total_steps = 3};
    world w = begin();
    tl_ckpt_contents contents = contents_of(&w);
    snprintf(path, sizeof path, "/tmp/tally-fuzz-%ld", (long)getpid());
    if (tl_optimizer_restore(tl_trainer_optimizer(w.trainer), 2) != TL_OK ||
        tl_ckpt_save(path, &contents, &state, &error) != TL_OK)
        abort();
    FILE *file = fopen(path, "rb");
    if (!file)
        abort();
    whole_bytes = fread(whole, 1, sizeof whole, file);
    fclose(file);
    unlink(path);
    end(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static unsigned char bytes[1 << 17];
    char path[64];
    size_t length = size;
    if (size < 4 || size > sizeof bytes)
        return 0;
    if (whole_bytes == 0)
        make_whole();
    if (data[0] & 1) { /* bytes 1–2: where to lay the rest over the whole one */
        size_t at = (size_t)(data[1] | data[2] << 8) % whole_bytes, n = size - 3;
        memcpy(bytes, whole, whole_bytes);
        memcpy(bytes + at, data + 3, n < whole_bytes - at ? n : whole_bytes - at);
        length = whole_bytes;
    } else {
        memcpy(bytes, data, size);
    }
    int file = memfd_create("checkpoint", 0);
    if (file < 0 || write(file, bytes, length) != (ssize_t)length)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    world w = begin();
    tl_error error = {TL_OK, ""};
    tl_ckpt_state state;
    tl_ckpt_contents contents = contents_of(&w);
    tl_status status = tl_ckpt_load(path, &contents, &state, &error);
    if (status != TL_OK && (error.status != status || error.message[0] == '\0'))
        abort();
    for (const char *c = error.message; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            abort();
    end(&w);
    close(file);
    return 0;
}
