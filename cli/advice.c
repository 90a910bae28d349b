/* cli/advice.c: what would make a run fit, for people. */
#include "advice.h"

#include <string.h>

static int widest_change(const tl_plan_advice *advice) {
    size_t most = 0;
    for (int i = 0; i < advice->count; i++)
        if (strlen(advice->list[i].change) > most)
            most = strlen(advice->list[i].change);
    return (int)most;
}

static int widest_effect(const tl_plan_advice *advice) {
    size_t most = 0;
    for (int i = 0; i < advice->count; i++)
        if (strlen(advice->list[i].effect) > most)
            most = strlen(advice->list[i].effect);
    return (int)most;
}

/* "+0.23 T FLOPs (+33.3 %)", "same FLOPs" */
static const char *extra_text(const tl_plan *plan, const tl_plan_suggestion *s, char *buffer, size_t size) {
    bool fewer = s->hardware_per_step < plan->hardware_per_step;
    tl_u128 difference =
        fewer ? plan->hardware_per_step - s->hardware_per_step : s->hardware_per_step - plan->hardware_per_step;
    char flops[TL_TEXT];
    if (difference == 0)
        snprintf(buffer, size, "no more FLOPs");
    else
        snprintf(buffer, size, "%s%s (%s%.1f %%)", fewer ? "-" : "+", tl_text_flops(tl_u128_double(difference), flops),
                 fewer ? "-" : "+", 100 * tl_u128_double(difference) / tl_u128_double(plan->hardware_per_step));
    return buffer;
}

/* One line each, two where the terminal is too narrow for that. */
void tl_advice_out(const tl_cli *cli, const tl_plan *plan, const tl_plan_advice *advice) {
    enum { DETAILS = 47, STEP = 20 }; /* size, whether it fits, FLOPs; "; a step 333.0 ms" */
    char size[TL_TEXT], step[TL_TEXT], fits[32], extra[64];
    int fitting = 0, wide = widest_change(advice), effect = widest_effect(advice);
    for (int i = 0; i < advice->count; i++)
        fitting += advice->list[i].fits;
    if (advice->count == 0) {
        if (!advice->state_exceeds)
            tl_out(cli, "  no single-device option of this build makes it fit\n");
        return;
    }
    /* What fits on the terminal: all on one line, the change on a line of its own, and then without the step's time. */
    bool timed = 3 + DETAILS + effect + STEP <= cli->width;
    bool one_line = 3 + wide + 2 + DETAILS + effect + (timed ? STEP : 0) <= cli->width;
    tl_out(cli, "\n%s\n",
           fitting ? "makes it fit, cheapest change first (each one planned):"
                   : "helps, and is not enough (each one planned):");
    for (int i = 0; i < advice->count; i++) {
        const tl_plan_suggestion *s = &advice->list[i];
        bool device = s->cost == TL_PLAN_COST_DEVICE;
        double share = (double)s->needs / (double)plan->usable_bytes;
        snprintf(fits, sizeof fits,
                 !s->fits                ? "too much"
                 : device                ? "fits"
                 : share > TL_PLAN_TIGHT ? "tight %.0f %%"
                                         : "fits %.0f %%",
                 share * 100);
        tl_text_duration(s->step_seconds, step);
        tl_out(cli, "%-2d %-*s%s", i + 1, one_line ? wide : 0, s->change, one_line ? "  " : "\n   ");
        tl_out(cli, "%8s  %-10s  %-23s  %s%s%s\n", tl_text_bytes((double)s->needs, cli->units, size), fits,
               extra_text(plan, s, extra, sizeof extra), s->effect, s->step_seconds > 0 && timed ? "; a step " : "",
               s->step_seconds > 0 && timed ? step : "");
    }
    if (advice->largest_saving > 0)
        tl_out_item(cli, "largest lever", "%s, alone: %s less", advice->largest_lever,
                    tl_text_bytes((double)advice->largest_saving, cli->units, size));
    tl_out(cli, "\n");
}
