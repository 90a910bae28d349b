/* cli/fit.h: what tally fit finds. */
#ifndef CLI_FIT_H
#define CLI_FIT_H

#include "verb.h"

/* In the order of the words it takes. */
typedef enum tl_fit_what { TL_FIT_MODEL, TL_FIT_BATCH, TL_FIT_CONTEXT, TL_FIT_DEVICES } tl_fit_what;

enum { TL_FIT_OWN_LEVERS };
/* `fit batch' and `fit context' with --levers (cli/fit_levers.c). Borrowed. */
typedef struct tl_fit_levers_asked {
    const tl_cli *cli;
    tl_fit_what what;
    const tl_plan_options *options;
    const char *device;
    int64_t capacity, usable;
    const tl_notes *assumed, *left_out;
} tl_fit_levers_asked;
int tl_fit_levers(const tl_fit_levers_asked *asked);

/* All but the model: planned. Returns an exit status. */
int tl_fit_plan(tl_cli *cli, tl_fit_what what);

#endif
