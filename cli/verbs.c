/* cli/verbs.c: the list of verbs, and what those of them share. */
#include <string.h>

#include "verb.h"

/* In the order help shows them. */
static const tl_verb *const verbs[] = {
    /* clang-format off: one a line */
    &tl_verb_time,   &tl_verb_op,    &tl_verb_fit,        &tl_verb_plan,    &tl_verb_sweep, &tl_verb_explain,
    &tl_verb_diff,   &tl_verb_check, &tl_verb_machine,    &tl_verb_train,   &tl_verb_eval,  &tl_verb_sample,
    &tl_verb_ledger, &tl_verb_mfu,   &tl_verb_export,     &tl_verb_models,  &tl_verb_gpus,  &tl_verb_inspect,
    &tl_verb_data,   &tl_verb_runs,  &tl_verb_completion, &tl_verb_version, &tl_verb_help,
    /* clang-format on */
};

int tl_verb_count(void) { return (int)(sizeof verbs / sizeof verbs[0]); }

const tl_verb *tl_verb_at(int index) { return index >= 0 && index < tl_verb_count() ? verbs[index] : NULL; }

const tl_verb *tl_verb_find(const char *name) {
    for (int i = 0; i < tl_verb_count(); i++)
        if (strcmp(verbs[i]->name, name) == 0)
            return verbs[i];
    return NULL;
}

tl_status tl_cli_model_parameters(const tl_model *model, tl_u128 *total, tl_error *error) {
    return tl_plan_count_parameters(model, total, error);
}

tl_rate tl_cli_precision_rate(int precision) {
    switch (precision) {
    case TL_PRECISION_FP32:
        return TL_RATE_FP32;
    case TL_PRECISION_FP16_MIXED:
        return TL_RATE_FP16;
    case TL_PRECISION_FP8_MIXED:
        return TL_RATE_FP8;
    default:
        return TL_RATE_BF16;
    }
}

void tl_cli_devices_assumed(const tl_cli *cli, tl_notes *notes) {
    const char *note = cli->options.devices.note;
    if (cli->options.devices_status == TL_OK && note && note[0])
        tl_notes_add(notes, "%s", note);
}

int tl_cli_devices_by_hand(const tl_cli *cli, int64_t *count, char *name, size_t size) {
    const char *text = cli->options.at[TL_OPTION_GPUS].text;
    tl_error error = {TL_OK, ""};
    char number[32];
    size_t digits = strspn(text, "0123456789");
    const char *called = text[digits] == 'x' && digits ? text + digits + 1 : "";
    bool plain = digits > 0 && digits < sizeof number && (text[digits] == '\0' || (text[digits] == 'x' && called[0]));
    if (!tl_given(cli, TL_OPTION_PEAK) || !plain)
        return tl_usage(cli, "--gpus: %s", cli->options.devices_error.message);
    snprintf(number, sizeof number, "%.*s", (int)digits, text);
    if (tl_parse_size(number, count, &error) != TL_OK || *count < 1)
        return tl_usage(cli, "--gpus %.80s: the number of devices is at least 1%s%s", text,
                        error.message[0] ? "; " : "", error.message);
    snprintf(name, size, "%.60s", called);
    return TL_EXIT_OK;
}
