/* Learning-rate schedules. Outside the planner core: they need cos. */
#include "tally/optim.h"

#include <math.h>

double tl_schedule_cosine(int64_t step, double max, double min, int64_t warmup, int64_t total) {
    static const double pi = 3.14159265358979323846;
    if (step < warmup)
        return (double)step / (double)warmup * max;
    if (step >= total)
        return min;
    double done = (double)(step - warmup) / (double)(total - warmup);
    return min + 0.5 * (1.0 + cos(pi * done)) * (max - min);
}
