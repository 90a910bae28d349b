/* cli/advice.h: the list of what would make a run fit; printed by plan and by train. */
#ifndef CLI_ADVICE_H
#define CLI_ADVICE_H

#include "verb.h"

/* The suggestions, numbered, each with its bytes, whether it fits and what it costs. */
void tl_advice_out(const tl_cli *cli, const tl_plan *plan, const tl_plan_advice *advice);

#endif
