/* nn/cache.h: what the layers both families share need to know of a cache that a forward runs through. */
#ifndef TALLY_NN_CACHE_H
#define TALLY_NN_CACHE_H

#include "nn/net.h"
#include "tally/cache.h"

struct tl_cache {
    tl_net *net;
    tl_cache_options options;
    int64_t length;
    bool last_only;
    /* Keys and values in turn, 2·N; of latent attention one for both, and NULL; NULL of layers that read another's. */
    tl_tensor **part;
};

/* New keys and values [B,G,t,K] of the block, written behind the old ones; *k and *v become all that the new positions may see
 * [B,G,past+t,K]: in a layer that sees a window fewer of the past than the positions seen. Without a cache, or of a block that
 * keeps none: as they are. */
bool tl_cache_append(tl_net *net, const tl_block *block, tl_tensor **k, tl_tensor **v);

/* Of latent attention: what keys and values are made from, [B,1,t,Rkv+Kr]. All of it, [B,1,past+t,Rkv+Kr]; NULL with the context's
 * error. */
tl_tensor *tl_cache_append_latent(tl_net *net, const tl_block *block, tl_tensor *x);

#endif
