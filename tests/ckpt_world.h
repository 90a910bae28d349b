/* ckpt_world.h: a small run whose checkpoints are tested: a net, an optimizer and sums to learn. */
#ifndef TALLY_TESTS_CKPT_WORLD_H
#define TALLY_TESTS_CKPT_WORLD_H

#include "tally/ckpt.h"
#include "tally/data.h"
#include "tally/train.h"

/* One row of the matrix: what a resumed run must not notice. Fields left out are the plainest choice. */
typedef struct ckpt_kind {
    const char *name;
    tl_optimizer_options optimizer; /* kind, and what differs from its defaults, taken by ckpt_begin */
    double dropout;
    int64_t accumulation; /* 0 is 1 */
    tl_dtype dtype;       /* 0, f64, is f32 */
    bool f64, llama;
    bool autocast, loss_scaling, fp8; /* tl_train_options' */
    tl_dtype low;
    tl_recompute recompute;
    int64_t width; /* 0 is 16 */
    double scale;  /* loss scaling's first, where it is not the usual: large enough, and steps are skipped */
    int threads, threads_after; /* of the whole run and the first half, and of the resumed one; 0 is 1 */
} ckpt_kind;

typedef struct ckpt_world {
    tl_ctx *ctx;
    tl_trainer *trainer;
    tl_sums *sums;
    int64_t steps;
    const tl_ckpt_part *parts;
    int n_parts;
} ckpt_world;

/* What the trainer carries beside parameters and states, as a part "precision": pass it to the world before saving or
 * loading; fill from a file afterwards with ckpt_take_scaler. */
enum { CKPT_EXTRAS = 64 };
typedef struct ckpt_precision {
    tl_ckpt_part part;
    tl_ckpt_tensor tensors[CKPT_EXTRAS];
    tl_safetensors_text texts[3];
    char numbers[3][32];
} ckpt_precision;
void ckpt_precision_of(ckpt_world *world, ckpt_precision *precision);
void ckpt_take_scaler(const ckpt_world *world, const char *path);

ckpt_world ckpt_begin(const ckpt_kind *kind, int64_t width, uint64_t seed, int threads);
void ckpt_end(ckpt_world *world);
/* The last loss. */
double ckpt_steps(ckpt_world *world, int count);
tl_ckpt_contents ckpt_contents(const ckpt_world *world);
tl_ckpt_state ckpt_state(const ckpt_world *world);
/* Every parameter, master copy and state, bit for bit. */
void ckpt_assert_same(const ckpt_world *a, const ckpt_world *b);

/* A file's bytes, malloc'd. */
unsigned char *ckpt_read_file(const char *path, size_t *length);
void ckpt_write_file(const char *path, const void *data, size_t length);

#endif
