/* nn/cache.h: what the layers both families share need to know of a cache that a forward runs through. */
#ifndef TALLY_NN_CACHE_H
#define TALLY_NN_CACHE_H

#include "nn/net.h"
#include "tally/cache.h"

struct tl_cache {
    tl_net *net;
    tl_cache_options options;
    int64_t length;
    int64_t layer; /* the next one to ask, while a forward runs */
    bool last_only;
    tl_tensor **part; /* keys and values in turn, 2·N; of latent attention one for both, and NULL */
};

/* New keys and values [B,G,t,K] of the next layer, written behind the old ones; *k and *v become all that the new positions may
 * see [B,G,past+t,K]. *past: how many of them come before the first new one; in a layer that sees a window fewer than the positions
 * seen. */
bool tl_cache_append(tl_net *net, tl_tensor **k, tl_tensor **v, int64_t *past);

/* Of latent attention: what keys and values are made from, [B,1,t,Rkv+Kr]. All of it, [B,1,past+t,Rkv+Kr]; NULL with the context's
 * error. */
tl_tensor *tl_cache_append_latent(tl_net *net, tl_tensor *x);

#endif
