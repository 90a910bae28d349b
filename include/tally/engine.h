/* tally/engine.h: frameworks as bundles of choices. The mathematics of a model is its description's; an engine says how a
 * framework runs it by default: what is fused, kept and cast (tally/choices.h), in which formats parameters, gradients and states
 * are, and what a process holds on the device beside tensors. An option given explicitly wins over the engine's.
 */
#ifndef TALLY_ENGINE_H
#define TALLY_ENGINE_H

#include "tally/choices.h"
#include "tally/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of which models a row holds. */
typedef enum tl_engine_models {
    TL_OF_ALL,
    TL_OF_NEW_GELU, /* whose published activation is "gelu_new": GPT-2, GPT-J, Phi */
    TL_OF_OTHERS    /* all but GPT-2, whose code in this framework does otherwise */
} tl_engine_models;

typedef struct tl_engine_choice {
    const char *name, *value; /* as for tl_choice_set */
    const char *source;       /* which module of the framework does so */
    tl_engine_models of;
} tl_engine_choice;

/* Who hands out device memory. */
typedef enum tl_engine_allocator {
    TL_ALLOCATOR_ARENA,  /* one block, planned before the step: what it holds is the plan's arena */
    TL_ALLOCATOR_CACHING /* PyTorch's: blocks of a few sizes are kept for reuse; it holds slack × the live peak */
} tl_engine_allocator;

typedef struct tl_engine {
    const char *name, *what;
    const tl_engine_choice *choices; /* ended by a NULL name; what is not named is as a zeroed tl_choices */
    tl_precision precision;          /* where none is given */
    bool autocast;                   /* its mixed precisions are: fp32 parameters, 4+4+8 with AdamW */
    const char *formats;             /* bytes a parameter with AdamW, and whose doing that is */
    tl_engine_allocator allocator;
    /* Outside tensors, each a number of src/hw/assumptions.h with its source there; 0: not known, or none. */
    int64_t context_bytes;   /* device context and loaded kernels */
    int workspaces;          /* matrix-product workspaces: one a handle */
    int64_t workspace_bytes; /* of each */
    int slack_permille;      /* of TL_ALLOCATOR_CACHING: reserved ÷ allocated − 1, in thousandths */
} tl_engine;

/* "tally" is the first and the default. */
int tl_engine_count(void);
const tl_engine *tl_engine_at(int index); /* NULL beyond the last */
/* An unknown name is TL_ERR_NOT_FOUND; the message names those there are. */
tl_status tl_engine_find(const char *name, const tl_engine **engine, tl_error *error) TL_MUST_CHECK;

/* *choices as the engine has them for the model (NULL: a Llama). Nothing of what *choices held stays. Pure. */
void tl_engine_choose(const tl_engine *engine, const tl_model *model, tl_choices *choices);
/* "norm=composed,rotary=tables", all of the engine's for the model. */
char *tl_engine_text(const tl_engine *engine, const tl_model *model, char *buffer, size_t size);
/* Bytes taken of a device whose tensors need `arena` bytes in one block and `peak` at once. Pure. */
int64_t tl_engine_needs(const tl_engine *engine, int64_t arena, int64_t peak);

#ifdef __cplusplus
}
#endif
#endif
