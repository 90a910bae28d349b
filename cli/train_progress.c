/* cli/train_progress.c: one line that is redrawn on a terminal, plain lines elsewhere. */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "train.h"

double tl_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tl_progress_begin(tl_progress *p, const tl_cli *cli) {
    struct winsize size;
    *p = (tl_progress){.cli = cli, .terminal = isatty(STDERR_FILENO) == 1, .width = 80};
    const char *term = getenv("TERM");
    if (term && strcmp(term, "dumb") == 0)
        p->terminal = false;
    if (p->terminal && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        p->width = size.ws_col;
}

static void bar(char *text, int length, int64_t done, int64_t all) {
    int full = all > 0 ? (int)((double)done / (double)all * length) : 0;
    for (int i = 0; i < length; i++)
        text[i] = i < full ? '#' : '.';
    text[length] = '\0';
}

/* "63.7/63.7 MB": measured of planned, the unit once where it is the same. */
static void write_memory(const tl_progress *p, const tl_line *l, char *text, size_t size) {
    char measured[TL_TEXT] = "-", planned[TL_TEXT];
    tl_text_bytes((double)l->planned_peak, p->cli->units, planned);
    if (l->measured_peak > 0)
        tl_text_bytes((double)l->measured_peak, p->cli->units, measured);
    char *space = strchr(measured, ' ');
    const char *unit = strchr(planned, ' ');
    if (space && unit && strcmp(space, unit) == 0)
        *space = '\0';
    snprintf(text, size, "%s/%s", measured, planned);
}

/* `wide`: with the bar and the share, which a terminal of 80 columns has no room for. */
static void write_line(const tl_progress *p, const tl_line *l, bool wide, char *text, size_t size) {
    char drawn[24], share[48] = "", mfu[32] = "", rate[TL_TEXT], memory[2 * TL_TEXT + 2], left[TL_TEXT];
    if (wide) {
        bar(drawn, 16, l->step, l->steps);
        snprintf(share, sizeof share, " %s%4.0f %%", p->terminal ? drawn : "",
                 l->steps > 0 ? 100.0 * (double)l->step / (double)l->steps : 0.0);
    }
    if (l->mfu > 0)
        snprintf(mfu, sizeof mfu, "  MFU %.3f", l->mfu);
    write_memory(p, l, memory, sizeof memory);
    snprintf(text, size, " %lld/%lld%s  loss %.4f  %s tok/s%s  mem %s  left %s", (long long)l->step,
             (long long)l->steps, share, l->loss, tl_text_count(l->tokens_per_second, rate), mfu, memory,
             tl_text_duration(l->left_seconds, left));
}

void tl_progress_show(tl_progress *p, const tl_line *l, bool log) {
    char text[512];
    if (p->cli->verbosity < 0 || (!p->terminal && !log))
        return;
    double now = tl_seconds();
    if (p->terminal && now - p->last < 0.1 && l->step != l->steps)
        return;
    p->last = now;
    write_line(p, l, !p->terminal || p->width >= 100, text, sizeof text);
    if (!p->terminal) {
        fprintf(stderr, "%s\n", text);
        return;
    }
    fprintf(stderr, "\r%.*s\033[K", p->width - 1, text);
    fflush(stderr);
    p->drawn = true;
}

void tl_progress_end(tl_progress *p) {
    if (p->drawn)
        fputc('\n', stderr);
    p->drawn = false;
}

/* The fields and no others: docs say what a line of metrics.jsonl holds. */
void tl_line_json(tl_json *json, const tl_line *l) {
    tl_json_put_integer(json, "step", l->step);
    tl_json_put_real(json, "loss", l->loss);
    if (l->has_val_loss)
        tl_json_put_real(json, "val_loss", l->val_loss);
    tl_json_put_real(json, "tokens_per_second", l->tokens_per_second);
    tl_json_key(json, "mfu");
    if (l->mfu > 0)
        tl_json_real(json, l->mfu);
    else
        tl_json_null(json); /* the peak is not known */
    tl_json_put_integer(json, "planned_peak_bytes", l->planned_peak);
    tl_json_put_integer(json, "measured_peak_bytes", l->measured_peak);
    tl_json_put_unsigned(json, "planned_flops", l->planned_flops);
    tl_json_put_unsigned(json, "measured_flops", l->measured_flops);
    tl_json_key(json, "planned_step_seconds");
    if (l->planned_seconds > 0)
        tl_json_real(json, l->planned_seconds);
    else
        tl_json_null(json);
    tl_json_put_real(json, "measured_step_seconds", l->measured_seconds);
    tl_json_put_integer(json, "unplanned_bytes", l->unplanned);
    if (l->loss_scale > 0) {
        tl_json_put_real(json, "loss_scale", l->loss_scale);
        tl_json_put_integer(json, "skipped_steps", l->skipped);
    }
    tl_json_put_real(json, "data_wait_seconds", l->wait_seconds);
}
