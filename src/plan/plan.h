/* plan/plan.h: what the plan's files share. */
#ifndef TALLY_PLAN_PLAN_H
#define TALLY_PLAN_PLAN_H

#include "tally/plan.h"

void tl_plan_note(char notes[TL_PLAN_NOTES][200], int *count, const char *format, ...) TL_PRINTF(3, 4);
/* Assumptions and omissions of a plan whose bytes are read. */
void tl_plan_notes(const tl_plan_options *options, const tl_plan_run *run, tl_plan *plan);
/* What bounds an op: seconds at these rates. machine: products at the rates measured by shape; else at peak. fp8_net: only
 * products of this net's float8 layers run at peak, all others at peak_beside. */
typedef struct tl_plan_rates {
    const tl_machine *machine;
    double peak, bandwidth, link;
    const tl_net *fp8_net;
    double peak_beside;
} tl_plan_rates;
typedef struct tl_plan_op_seconds {
    double compute, memory, sent;
} tl_plan_op_seconds;
void tl_plan_op_time(const tl_plan_rates *rates, const tl_op_entry *entry, tl_plan_op_seconds *seconds);
/* Of the devices' memory; 0: unknown. */
double tl_plan_bandwidth(const tl_devices *devices, const tl_machine *machine);
/* Time, bound, cost of the step that `run` logged. */
void tl_plan_time(const tl_plan_options *options, tl_plan_run *run, tl_plan *plan);
/* Init, load and save; after everything else was read off the run. */
tl_status tl_plan_moments(const tl_plan_options *options, tl_plan_run *run, tl_plan *plan, tl_error *error);
void tl_plan_copy_peak(const tl_peak *from, tl_plan_peak *to);

#endif
