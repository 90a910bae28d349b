/* nn/start.h: a net's initialisation scheme, read from its name. */
#ifndef TALLY_NN_START_H
#define TALLY_NN_START_H

#include "nn/net.h"

/* Reads "gpt2:0.02"; NULL is the default. The context's error. */
tl_status tl_scheme_read(tl_ctx *ctx, const char *text, tl_init_scheme *scheme);
/* Fills a parameter that its family would start as `start`. */
tl_status tl_scheme_start(const tl_net *net, tl_tensor *t, const char *name, tl_start start);

#endif
