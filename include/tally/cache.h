/* tally/cache.h: generating with a net: the keys and values of the positions seen, kept; weights in int8.
 *
 * A cache holds, for each of N layers, keys and values [B, G, S, K]: batch, key/value heads, capacity in positions, head
 * size. That is 2·N·B·S·G·K elements, category cache, allocated whole at the start: a step of decoding allocates no more of
 * it. (K is the head size and not D ÷ H, and G the key/value heads: where a model sets them apart, so does the cache.) Latent
 * attention keeps what keys and values are made from, one tensor [B, 1, S, Rkv + Kr] a layer, and reads it absorbed (DeepSeek-AI
 * 2024, section 2.1); Hugging Face's code keeps full keys and values. A layer that sees a window of W positions keeps the last W
 * and no more (Hugging Face's SlidingWindowLayer); one that sees its chunk keeps all; one that reads another's keys and values
 * keeps none.
 *
 * A forward through the cache runs the same modules as tl_net_forward: positions (learned or rotary) go on from the length,
 * new keys and values are written behind the old ones in place, and each new position sees all up to itself. On meta it
 * accounts for a generation before there is one.
 */
#ifndef TALLY_CACHE_H
#define TALLY_CACHE_H

#include "tally/nn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_cache tl_cache;

typedef struct tl_cache_options {
    int64_t batch;    /* B: sequences, 1 or more */
    int64_t capacity; /* S: positions, 1 or more; with learned positions no more than the model has */
    tl_dtype
        dtype; /* of what is kept: any float. Another than the net's is converted when written, and read back whole,
                         one layer at a time, as work */
} tl_cache_options;

/* Empty. It lives in the net's context and must be freed before the net. NULL with the context's error. */
tl_cache *tl_cache_new(tl_net *net, const tl_cache_options *options);
void tl_cache_free(tl_cache *cache);
int64_t tl_cache_length(const tl_cache *cache); /* positions seen */
int64_t tl_cache_capacity(const tl_cache *cache);
/* Of the storages: 2·N·B·S·G·K·size where layers are alike and see all; of latent attention N·B·S·(Rkv + Kr)·size. */
int64_t tl_cache_bytes(const tl_cache *cache);
/* Forgets what is beyond `length`; 0 starts anew. More than there is: TL_ERR_ARGUMENT in the context; fewer than a layer with a
 * window has let go: TL_ERR_UNSUPPORTED. */
tl_status tl_cache_truncate(tl_cache *cache, int64_t length);
/* Whether what is kept stands when `tokens` more positions follow. False: they take a model with longrope past its original
 * context, where the long factors turn all positions, and what is kept was turned by the short ones: the cache is to be cut to 0
 * and the whole sequence fed again, which tl_generate does. (Dynamic scaling has another base at each length beyond the context;
 * there the keys stay as each was turned, as in transformers, so that a cached forward is not that of the whole sequence.) */
bool tl_cache_holds(const tl_cache *cache, int64_t tokens);
/* Borrowed, [B, G, S, K], or W in place of S; of a layer that reads another's (tl_model_kv_source) that one's. Of latent attention
 * the key is its one tensor, and the value NULL. NULL where there is no such layer. */
tl_tensor *tl_cache_key(const tl_cache *cache, int64_t layer);
tl_tensor *tl_cache_value(const tl_cache *cache, int64_t layer);

typedef enum tl_logits {
    TL_LOGITS_ALL, /* [B, t, V] */
    TL_LOGITS_LAST /* [B, 1, V]: the head runs on the last position alone */
} tl_logits;
/* tokens i32 or i64 [B, t], t ≥ 1: prefill where t > 1, decoding where it is 1. Nothing is recorded, dropout is off. A cache
 * that cannot take t more positions: NULL, TL_ERR_ARGUMENT with its length and capacity, and it stays as it was. One
 * that does not hold (tl_cache_holds): NULL, TL_ERR_UNSUPPORTED. After any other failure the length is unchanged too. */
tl_tensor *tl_net_forward_cached(tl_net *net, tl_cache *cache, tl_tensor *tokens, tl_logits logits);

/* Linear layers to int8, one scale a row (output): scale = largest |w| of the row ÷ 127 in f32, q = w ÷ scale rounded to
 * nearest even, so |w − q·scale| ≤ scale/2 (but for the roundings of f32). Weights alone, never activations; products
 * multiply x by q and the sum by the scale (tl_linear_int8). Embeddings, norms, biases, the head, tied or not, and experts stay. A
 * weight's tensor in the list of parameters is then i8 and wants no gradient; its float original is freed before the next
 * is quantised. For inference alone. A second time: TL_ERR_STATE. Not finite: TL_ERR_ARGUMENT, naming the weight (but on
 * meta); the net is then partly quantised: let go of it. */
tl_status tl_net_quantize_int8(tl_net *net);
bool tl_net_is_quantized(const tl_net *net);
/* The scales f32 [out] of parameter `index`; NULL where it has none. */
tl_tensor *tl_net_scale(const tl_net *net, int index);

#ifdef __cplusplus
}
#endif
#endif
