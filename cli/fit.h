/* cli/fit.h: what tally fit finds. */
#ifndef CLI_FIT_H
#define CLI_FIT_H

#include "verb.h"

/* In the order of the words it takes. */
typedef enum tl_fit_what { TL_FIT_MODEL, TL_FIT_BATCH, TL_FIT_CONTEXT, TL_FIT_DEVICES } tl_fit_what;

/* All but the model: planned. Returns an exit status. */
int tl_fit_plan(tl_cli *cli, tl_fit_what what);

#endif
