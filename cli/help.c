/* cli/help.c: what --help prints, of the program and of a verb. */
#include <string.h>

#include "options.h"

/* Where a part of the common options begins, in their order. */
static const struct {
    tl_option first;
    const char *title;
} parts[] = {{TL_OPTION_GPUS, "What is run"},
             {TL_OPTION_ATTENTION, "How it is computed and counted"},
             {TL_OPTION_ZERO, "Over devices"},
             {TL_OPTION_LORA, "Finetuning"},
             {TL_OPTION_INFER, "Serving, time and cost"}};
enum { PARTS = sizeof parts / sizeof parts[0], FEW = 12 };

const char *tl_options_title(const tl_verb *verb, int i) {
    int taken = 0;
    for (int k = 0; k < TL_OPTION_COUNT; k++)
        taken += verb->takes >> k & 1;
    for (int k = 0; k < PARTS && taken > FEW; k++) {
        int end = k + 1 < PARTS ? (int)parts[k + 1].first : TL_OPTION_COUNT;
        for (int of = i; (int)parts[k].first == i && of < end; of++)
            if (verb->takes >> of & 1)
                return parts[k].title;
    }
    return NULL;
}

static void out_options(const tl_cli *cli, const tl_verb *verb) {
    struct argp_option merged[TL_MERGED];
    char left[128], letter[8];
    tl_options_merge(verb, merged);
    if (merged[0].name && !(merged[0].flags & OPTION_HIDDEN))
        tl_out(cli, "\n");
    for (const struct argp_option *option = merged; option->name || option->doc; option++) {
        if (!option->name)
            tl_out(cli, "\n%s\n", option->doc);
        if (!option->name || option->flags & OPTION_HIDDEN)
            continue;
        snprintf(letter, sizeof letter, option->key > ' ' && option->key < 127 ? "-%c, " : "    ", option->key);
        snprintf(left, sizeof left, "  %s--%s%s%s", letter, option->name, option->arg ? " " : "",
                 option->arg ? option->arg : "");
        tl_out_wrapped(cli, 28, left, option->doc);
    }
}

static void out_verbs(const tl_cli *cli) {
    static const char *const titles[TL_GROUP_COUNT] = {"Before a run", "During and after", "Look-ups"};
    char left[32];
    for (int group = 0; group < TL_GROUP_COUNT; group++) {
        bool titled = false;
        for (int i = 0; i < tl_verb_count(); i++) {
            const tl_verb *each = tl_verb_at(i);
            if ((int)each->group != group)
                continue;
            if (!titled)
                tl_out(cli, "\n%s\n", titles[group]);
            titled = true;
            snprintf(left, sizeof left, "  %s", each->name);
            tl_out_wrapped(cli, 14, left, each->summary);
        }
    }
}

int tl_cli_help(tl_cli *cli, const tl_verb *verb) {
    tl_cli_prepare(cli);
    if (verb) {
        char left[64];
        snprintf(left, sizeof left, "tally %s:", verb->name);
        tl_out_wrapped(cli, (int)strlen(left) + 1, left, verb->summary);
        tl_out(cli, "\nusage: tally %s [OPTION…]%s%s\n", verb->name, verb->arguments[0] ? " " : "", verb->arguments);
        out_options(cli, verb);
        if (verb->details)
            tl_out(cli, "\n%s\n", verb->details);
        return TL_EXIT_OK;
    }
    tl_out(cli, "tally: the account of a language model: memory, FLOPs, time and cost\n\n"
                "usage: tally [OPTION…] VERB [OPTION…] [ARGUMENT…]\n");
    out_verbs(cli);
    out_options(cli, NULL);
    tl_out(cli, "\n`tally VERB --help' says more of a verb.\n"
                "Exit status: 0 ok; 1 failed; 2 usage; 3 does not fit or cannot be;\n"
                "             130 interrupted, checkpoint saved\n");
    return TL_EXIT_OK;
}
