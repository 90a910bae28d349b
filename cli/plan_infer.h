/* cli/plan_infer.h: tally plan --infer. */
#ifndef CLI_PLAN_INFER_H
#define CLI_PLAN_INFER_H

#include "plan_request.h"

/* prompt, weights: as typed, NULL where not given. Exit status. */
int tl_plan_infer(tl_cli *cli, const char *prompt, const char *weights);

#endif
