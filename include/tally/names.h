/* tally/names.h: which tensors of a published checkpoint make up a parameter of a net.
 *
 * A net names its parameters as Hugging Face's checkpoints do and keeps fused projections as they are published (qkv_proj,
 * query_key_value, gate_up_proj), so that nearly every parameter is one tensor of the same name and shape. Two are not:
 *   gpt2      c_attn, c_proj and c_fc are published as [in, out] (Conv1D); the net's are [out, in]
 *   experts   the net keeps all experts of a layer in one parameter, [E, out, in] or a bias [E, out], named without a number:
 *             "model.layers.3.mlp.experts.gate_proj.weight". Mixtral, Qwen-MoE and DeepSeek publish a tensor an expert,
 *             "model.layers.3.mlp.experts.17.gate_proj.weight", slice 17 of it. gpt_oss, llama4 and gemma4 publish all
 *             experts in one tensor, and so it is here.
 * A name that is not "model.…" in some files: checkpoints of models that also see images hold the text's part under
 * "model.language_model." (gemma4) or "language_model.model." (llama4); the first files of phi-msft count all in one list
 * ("layers.4.mixer.Wqkv" for "transformer.h.3.mixer.Wqkv"). Who reads such files maps them to the names here.
 */
#ifndef TALLY_NAMES_H
#define TALLY_NAMES_H

#include "tally/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_published {
    char name[192];  /* in the checkpoint, without a prefix that some files carry ("transformer." of gpt2) */
    bool transposed; /* published [in, out] of a parameter [out, in] */
    int64_t expert; /* the tensor is slice `expert` of the parameter's first axis, without that axis; −1: all of it */
} tl_published;

/* How many published tensors make up the parameter: 1, or E. */
int64_t tl_published_parts(const tl_model *model, const char *parameter);
/* Part 0 … parts − 1. A part beyond is TL_ERR_ARGUMENT, a name that does not fit TL_ERR_OVERFLOW. */
tl_status tl_published_part(const tl_model *model, const char *parameter, int64_t part, tl_published *published,
                            tl_error *error) TL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
