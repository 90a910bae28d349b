/* plan/plan.h: what the plan's files share. */
#ifndef TALLY_PLAN_PLAN_H
#define TALLY_PLAN_PLAN_H

#include "tally/plan.h"

void tl_plan_note(char notes[TL_PLAN_NOTES][200], int *count, const char *format, ...) TL_PRINTF(3, 4);
/* Time, bound, cost of the step that `run` logged. */
void tl_plan_time(const tl_plan_options *options, tl_plan_run *run, tl_plan *plan);

#endif
